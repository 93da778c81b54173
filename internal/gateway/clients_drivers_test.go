package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// clientSDK is one official client library in one language.
type clientSDK struct {
	language, name string
	dialect        string
	// base is what its base URL has behind the gateway's address.
	base string
	// habit is what it does with a refusal.
	habit clientHabit
	// ops are the operations that it has and that are billed to the token.
	ops []string
}

// clientHabit is how an SDK deals with an error by default.
type clientHabit uint8

const (
	obeys  clientHabit = iota // two retries on 408, 409, 429 and 5xx, and x-should-retry outranks the status
	quiet                     // no retries, unless they are asked for
	deafly                    // two retries on 408, 409, 429 and 5xx, whatever x-should-retry says
)

func (s *clientSDK) String() string { return s.language + "-" + s.name }

var (
	chatOps      = []string{"plain", "stream", "tools", "tools_stream"}
	openAIOps    = append([]string{"stream_no_usage", "embed", "responses", "responses_tools", "responses_stream"}, chatOps...)
	anthropicOps = append([]string{"count"}, chatOps...)
	geminiOps    = append([]string{"count", "embed"}, chatOps...)
	mistralOps   = append([]string{"embed"}, chatOps...)
)

// clientSDKs have the versions that tests/clients pins.
var clientSDKs = []*clientSDK{
	{"go", "openai", provider.OpenAI, "/v1", obeys, openAIOps},
	{"go", "anthropic", provider.Anthropic, "/anthropic", obeys, anthropicOps},
	{"go", "genai", provider.Gemini, "/gemini", quiet, geminiOps},
	{"python", "openai", provider.OpenAI, "/v1", obeys, openAIOps},
	{"python", "anthropic", provider.Anthropic, "/anthropic", obeys, anthropicOps},
	{"python", "genai", provider.Gemini, "/gemini", quiet, geminiOps},
	{"python", "mistral", provider.Mistral, "/mistral", quiet, mistralOps},
	{"node", "openai", provider.OpenAI, "/v1", obeys, openAIOps},
	{"node", "anthropic", provider.Anthropic, "/anthropic", obeys, anthropicOps},
	{"node", "genai", provider.Gemini, "/gemini", quiet, geminiOps},
	{"node", "mistral", provider.Mistral, "/mistral", quiet, mistralOps},
	{"node", "ai", provider.OpenAI, "/v1", deafly, append([]string{"embed", "responses", "responses_stream"}, chatOps...)},
	{"node", "ai_compatible", provider.OpenAI, "/v1", deafly, append([]string{"embed"}, chatOps...)},
}

// clientCall and clientResult are the lines of the drivers' protocol: tests/clients/README.md.
type clientCall struct {
	ID        string            `json:"id"`
	SDK       string            `json:"sdk"`
	Op        string            `json:"op"`
	BaseURL   string            `json:"base_url"`
	Key       string            `json:"key"`
	Model     string            `json:"model"`
	Headers   map[string]string `json:"headers"`
	Text      string            `json:"text,omitempty"`
	MaxTokens int64             `json:"max_tokens,omitempty"`
	Retries   bool              `json:"retries,omitempty"`
	TimeoutS  float64           `json:"timeout_s"`
}

type clientResult struct {
	ID   string `json:"id"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
	Tool *struct {
		Name      string         `json:"name"`
		Arguments map[string]any `json:"arguments"`
	} `json:"tool"`
	Vectors int `json:"vectors"`
	Usage   *struct {
		Input  int64 `json:"input"`
		Output int64 `json:"output"`
	} `json:"usage"`
	Error *struct {
		Type    string `json:"type"`
		Status  int    `json:"status"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	ElapsedMS int64 `json:"elapsed_ms"`
}

// failure is the error's type, "" of a call that succeeded.
func (r *clientResult) failure() string {
	if r.Error == nil {
		return ""
	}
	return strings.TrimSpace(r.Error.Type)
}

// clientDriver is the command that runs a language's driver.
func clientDriver(t *testing.T, language string) *exec.Cmd {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin, src := filepath.Join(root, "bin", "clients"), filepath.Join(root, "tests", "clients")
	var args []string
	switch language {
	case "go":
		args = []string{filepath.Join(bin, "go-driver")}
	case "python":
		args = []string{filepath.Join(bin, "python", "bin", "python"), filepath.Join(src, "python", "driver.py")}
	case "node":
		args = []string{"node", "--preserve-symlinks-main", filepath.Join(bin, "node", "driver.mjs")}
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Fatalf("the %s clients are not installed (%v): run make clients, or set TBA_SKIP_CLIENTS=1", language, err)
	}
	if _, err := os.Stat(args[len(args)-1]); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the %s clients are not installed (%v): run make clients, or set TBA_SKIP_CLIENTS=1", language, err)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	// No key, proxy or base URL of whoever runs the tests.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"}
	return cmd
}

// runClients makes all calls, each language in one process and all at once, and returns the results by id.
func runClients(t *testing.T, calls map[string][]clientCall) map[string]*clientResult {
	t.Helper()
	results := map[string]*clientResult{}
	var mu sync.Mutex
	var running sync.WaitGroup
	for language, list := range calls {
		cmd := clientDriver(t, language)
		var in, errs bytes.Buffer
		lines := json.NewEncoder(&in)
		for i := range list {
			if err := lines.Encode(&list[i]); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Stdin, cmd.Stderr = &in, &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatalf("start the %s driver: %v", language, err)
		}
		running.Go(func() {
			err := readClientResults(out, func(r *clientResult) {
				mu.Lock()
				defer mu.Unlock()
				results[r.ID] = r
			})
			if wait := cmd.Wait(); wait != nil || err != nil {
				t.Errorf("%s driver: %v\n%s", language, errors.Join(err, wait), errs.Bytes())
			}
		})
	}
	running.Wait()
	return results
}

func readClientResults(out io.Reader, take func(*clientResult)) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		r := new(clientResult)
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			return err
		}
		take(r)
	}
	return lines.Err()
}
