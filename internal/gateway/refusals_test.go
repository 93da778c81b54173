package gateway

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestRefusals shows every refusal in every dialect: the files in testdata are the table of docs/gateway.md, refusals, spelled out.
func TestRefusals(t *testing.T) {
	t.Parallel()
	options := refuseOptions{agent: "crawler-7", requestID: "req-1", model: "claude-opus-4.1"}
	for _, d := range dialects(t) {
		var b strings.Builder
		for _, r := range everyReason() {
			for _, s := range shapes {
				resp, body := answer(t, refuseGrant(exampleOf(r, s.status, s.wait), d, refusedAt, options), d)
				fmt.Fprintf(&b, "## %s, %s\n\nHTTP %d\n", r, s.name, resp.StatusCode)
				var names []string
				for name := range resp.Header {
					if name != "Content-Length" && name != "Content-Type" && name != "X-Content-Type-Options" && name != "Cache-Control" {
						names = append(names, name)
					}
				}
				slices.Sort(names)
				for _, name := range names {
					fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(name), strings.Join(resp.Header[name], ", "))
				}
				var out bytes.Buffer
				if err := json.Indent(&out, body, "", " "); err != nil {
					t.Errorf("%s %s %s: body %q: %v", d.Name(), r, s.name, body, err)
				}
				fmt.Fprintf(&b, "%s\n\n", out.Bytes())
			}
		}
		file := filepath.Join("testdata", "refusals", d.Name()+".txt")
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != string(want) {
			t.Errorf("%s: differs from what is written there (go test ./internal/gateway -run '^TestRefusals$' -update): %s", file, firstDifference(got, string(want)))
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return fmt.Sprintf("line %d is %q", i+1, g[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
