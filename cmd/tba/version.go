package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker: -X main.release=v1.2.3.
var release = ""

type versionRow struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Built    string `json:"built"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// build says what this program is: the linker's version, else the module's, else that it is none.
func build() versionRow {
	v := versionRow{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.time":
				v.Built = s.Value
			case "vcs.modified":
				if s.Value == "true" {
					v.Commit += "+changes"
				}
			}
		}
	}
	if v.Version == "" {
		v.Version = "devel"
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "What this program is", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return printOne(a, build(), []column[versionRow]{
				{title: "tba", cell: func(v versionRow) string { return v.Version }},
				{title: "commit", cell: func(v versionRow) string { return v.Commit }},
				{title: "built", cell: func(v versionRow) string { return v.Built }},
				{title: "go", cell: func(v versionRow) string { return v.Go }},
				{title: "platform", cell: func(v versionRow) string { return v.Platform }},
			})
		},
	}
}
