package config

import (
	"strings"
	"testing"
	"time"
)

const small = "budget: {providers: {openai: {rpm_ceiling: 5}}}\n"

func TestSettingsAreFewAndNamedByRule(t *testing.T) {
	t.Parallel()
	all := AllSettings()
	if len(all) >= 30 {
		t.Errorf("%d process settings, want fewer than 30", len(all))
	}
	seen := map[string]bool{"config": true, "data": true}
	for _, s := range all {
		if seen[s.Flag] || s.Doc == "" || !strings.HasPrefix(s.Env, "TBA_") {
			t.Errorf("%+v", s)
		}
		seen[s.Flag] = true
	}
	for _, want := range []string{"listen-http", "listen-grpc", "listen-ops", "journal", "drain-timeout"} {
		if !seen[want] {
			t.Errorf("no flag --%s", want)
		}
	}
}

// value of one key with its source.
func value(c *Config, path string) string {
	for _, v := range c.Values() {
		if v.Path == path {
			return v.Value + " from " + v.Source
		}
	}
	return "absent"
}

func TestFlagsOverEnvironmentOverFileOverDefault(t *testing.T) {
	t.Parallel()
	file := small + "log: {level: warn}\ndrain_timeout: 5s\njournal: file:/f\nreload: {watch: false}\n"
	env := func(vars map[string]string) func(string) (string, bool) {
		return func(k string) (string, bool) { v, ok := vars[k]; return v, ok }
	}
	s := Sources{
		Env:   env(map[string]string{"TBA_DRAIN_TIMEOUT": "6s", "TBA_LOG_LEVEL": "", "TBA_DATA": "/e", "TBA_RELOAD_WATCH": "true"}),
		Flags: map[string]string{"drain-timeout": "7s", "listen-http": "127.0.0.1:0", "unrelated": "x"},
	}
	c, err := s.LoadBytes("f.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"drain_timeout":                       "7s from flag --drain-timeout",
		"journal":                             "file:/e from environment TBA_DATA",
		"log.level":                           "warn from f.yaml:2", // an empty variable is none
		"log.format":                          "auto from default",
		"listen.http":                         "127.0.0.1:0 from flag --listen-http",
		"reload.watch":                        "true from environment TBA_RELOAD_WATCH",
		"budget.providers.openai.rpm_ceiling": "5 from f.yaml:1",
	} {
		if got := value(c, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if c.Settings.DrainTimeout != Duration(7*time.Second) || c.Settings.Journal != "file:/e" || !c.Settings.Reload.Watch {
		t.Errorf("%+v", c.Settings)
	}
	s.Flags["data"] = "/d"
	if c, err = s.LoadBytes("f.yaml", []byte(file)); err != nil || c.Settings.Journal != "file:/d" {
		t.Errorf("--data: %v, %v", c, err)
	}
}

func TestSettingsThatAreWrongNameTheirSource(t *testing.T) {
	t.Parallel()
	s := Sources{
		Env:   func(k string) (string, bool) { return "verbose", k == "TBA_LOG_LEVEL" },
		Flags: map[string]string{"drain-timeout": "30", "listen-http": "0.0.0.0:80", "journal": "redis://r", "listen-grpc": "x\x1b"},
	}
	_, err := s.LoadBytes("f.yaml", []byte(small))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`environment TBA_LOG_LEVEL: error: "verbose" is not one of debug, info, warn, error [enum]`,
		`flag --drain-timeout: error: 30 has no unit; did you mean "30s"? [duration]`,
		`flag --listen-http: error: listen.http is 0.0.0.0:80, which others can reach`,
		`flag --journal: error: journal: journals on redis are not there yet`,
		`flag --listen-grpc: error: "x·" has control characters [text]`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "f.yaml:") {
		t.Errorf("the file is blamed:\n%v", err)
	}
}

func TestSettingsWithoutAFile(t *testing.T) {
	t.Parallel()
	got, err := Sources{Flags: map[string]string{"listen-http": "127.0.0.1:0"}}.Settings()
	if err != nil || got.Listen.HTTP != "127.0.0.1:0" || got.Listen.Ops != "127.0.0.1:7482" || got.DrainTimeout != Duration(30*time.Second) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := (Sources{Flags: map[string]string{"listen-http": "here"}}).Settings(); err == nil || !strings.Contains(err.Error(), "--listen-http") {
		t.Errorf("%v", err)
	}
}
