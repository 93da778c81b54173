package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Settings are those of the process, not of a pool. Each can be given by flag, by environment variable, in the file, or
// left at its default, in that order. Flag and variable follow from the key: listen.http is --listen-http and TBA_LISTEN_HTTP.
type Settings struct {
	Listen       Listen   `yaml:"listen" doc:"Addresses to listen on."`
	Journal      string   `yaml:"journal" doc:"Where grants and commits are remembered: memory, or file:DIR. --data DIR is short for file:DIR. Required by serve." example:"file:/var/lib/tba"`
	Log          Log      `yaml:"log" doc:"Logs on stderr."`
	TLS          TLS      `yaml:"tls" doc:"Certificate of the HTTP and gRPC listeners. Read again when the files change."`
	DrainTimeout Duration `yaml:"drain_timeout" default:"30s" doc:"How long a stop waits for running leases to end. At most 1h."`
	Reload       Reload   `yaml:"reload" doc:"Taking over changes of this file while running."`
}

// Listen has the three addresses.
type Listen struct {
	HTTP     string `yaml:"http" default:"127.0.0.1:7480" doc:"JSON API and event streams. Port 0 takes a free one. Other than loopback needs auth.keys."`
	GRPC     string `yaml:"grpc" default:"127.0.0.1:7481" doc:"gRPC. Other than loopback needs auth.keys."`
	Ops      string `yaml:"ops" default:"127.0.0.1:7482" doc:"Liveness, readiness, metrics and profiles. Other than loopback needs auth.keys; profiles are served to this machine only, wherever the port listens."`
	AddrFile string `yaml:"addr_file" doc:"A file that gets the bound addresses as JSON." example:"/run/tba/addresses.json"`
}

// Log sets the logs.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error" doc:"The least severe line that is written. debug writes one line for each decision."`
	Format string `yaml:"format" default:"auto" enum:"auto|json|text" doc:"auto is text on a terminal and JSON elsewhere."`
}

// TLS names the certificate.
type TLS struct {
	Cert string `yaml:"cert" doc:"PEM file of the certificate chain." example:"/etc/tba/tls.crt"`
	Key  string `yaml:"key" doc:"PEM file of its key." example:"/etc/tba/tls.key"`
}

// Reload sets hot reload.
type Reload struct {
	Watch bool     `yaml:"watch" default:"true" doc:"Whether a changed file is taken over by itself. SIGHUP always does."`
	Poll  Duration `yaml:"poll" default:"5s" doc:"How often the file is compared, for file systems that announce no changes. 100ms to 1h."`
}

// Setting describes one process setting.
type Setting struct{ Path, Flag, Env, Default, Doc string }

// AllSettings lists the process settings in the order of the file. The flag --data (TBA_DATA), short for --journal file:DIR,
// and the place of the file itself (--config, TBA_CONFIG) are beside them.
func AllSettings() []Setting {
	var out []Setting
	walkSettings(reflect.ValueOf(new(Settings)).Elem(), "", func(f field, _ reflect.Value, path string) {
		out = append(out, Setting{
			Path: path, Default: f.fallback, Doc: f.doc,
			Flag: strings.NewReplacer(".", "-", "_", "-").Replace(path),
			Env:  "TBA_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_")),
		})
	})
	return out
}

func walkSettings(v reflect.Value, path string, visit func(field, reflect.Value, string)) {
	for _, f := range fieldsOf(v.Type()) {
		fv, at := v.FieldByIndex(f.index), child(path, f.name)
		if _, ok := fv.Addr().Interface().(scalar); !ok && fv.Kind() == reflect.Struct {
			walkSettings(fv, at, visit)
			continue
		}
		visit(f, fv, at)
	}
}

// Sources are where process settings come from beside the file. The zero value has none.
type Sources struct {
	// Flags has the flags that were set, by name without dashes. Others are ignored.
	Flags map[string]string
	// Env looks up an environment variable; nil has none. [os.LookupEnv] fits.
	Env func(string) (string, bool)
}

// override puts flags and variables over what the file said and returns where each such value came from.
func (s Sources) override(to *Settings) (from map[string]string, faults Faults) {
	from = map[string]string{}
	env := s.Env
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	set := func(path, where, text string) {
		from[path] = where
		walkSettings(reflect.ValueOf(to).Elem(), "", func(f field, v reflect.Value, at string) {
			if at != path {
				return
			}
			if err := setWord(v, f, text); err != nil {
				fault := Fault{File: where, Severity: Error, Path: path, Rule: "value", Text: err.Error()}
				if w, ok := err.(*wrong); ok {
					fault.Rule, fault.Suggestion = w.rule, w.suggestion
				}
				faults = append(faults, fault)
			}
		})
	}
	// An empty variable is as good as none: containers set them so.
	if dir, ok := env("TBA_DATA"); ok && dir != "" {
		set("journal", "environment TBA_DATA", "file:"+dir)
	}
	for _, setting := range AllSettings() {
		if text, ok := env(setting.Env); ok && text != "" {
			set(setting.Path, "environment "+setting.Env, text)
		}
	}
	if dir, ok := s.Flags["data"]; ok {
		set("journal", "flag --data", "file:"+dir)
	}
	for _, setting := range AllSettings() {
		if text, ok := s.Flags[setting.Flag]; ok {
			set(setting.Path, "flag --"+setting.Flag, text)
		}
	}
	return from, faults
}

// setWord parses one setting from a flag or variable.
func setWord(v reflect.Value, f field, text string) error {
	if s, ok := v.Addr().Interface().(scalar); ok {
		return s.parse(text)
	}
	switch v.Kind() {
	case reflect.Bool:
		b, err := parseBool(text)
		v.SetBool(b)
		return err
	case reflect.String:
		if err := clean(text); err != nil {
			return err
		}
		if len(f.enum) > 0 {
			ok := false
			for _, e := range f.enum {
				ok = ok || e == text
			}
			if !ok {
				return &wrong{"enum", fmt.Sprintf("%q is not one of %s", plain(text), strings.Join(f.enum, ", ")), ""}
			}
		}
		v.SetString(text)
		return nil
	}
	panic(fmt.Sprintf("config: no setting of %v", v.Type()))
}
