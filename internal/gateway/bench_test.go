package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/filejournal"
	"github.com/token-budget-arbiter/tba/internal/gateway"
)

// The benchmarks run three processes on one machine: callers (this one), a proxy and an upstream that answers at once. The proxy is
// either net/http/httputil.ReverseProxy, tuned (idle connections for all callers, no compression, pooled buffers), or the gateway with
// leases on a file journal. Both see the same bytes in the same run; what is reported of the gateway is the ratio to the bare proxy.

const (
	roleVariable = "TBA_BENCH_ROLE"
	callers      = 64
)

// role is what this process is in a benchmark, when it is not the one that measures.
func role() (func() error, bool) {
	switch os.Getenv(roleVariable) {
	case "upstream":
		return serveUpstream, true
	case "bare":
		return serveBare, true
	case "gateway":
		return serveGateway, true
	}
	return nil, false
}

// part is a process of a benchmark.
type part struct {
	name string
	url  string
	stop func()
}

// launch starts this program in another role and waits until it says where it listens.
func launch(b *testing.B, name string, env ...string) *part {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), append(env, roleVariable+"="+name)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatalf("%s said nothing: %v", name, err)
	}
	p := &part{name: name, url: strings.TrimSpace(line), stop: sync.OnceFunc(func() { in.Close(); _ = cmd.Wait() })}
	b.Cleanup(p.stop)
	return p
}

// listen serves h until the parent goes away, plus /cpu: the processor time this process has used, in microseconds, and its memory in use.
func listen(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("/bench/cpu", func(w http.ResponseWriter, _ *http.Request) {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		fmt.Fprint(w, (u.Utime.Sec+u.Stime.Sec)*1e6+u.Utime.Usec+u.Stime.Usec)
	})
	mux.HandleFunc("/bench/memory", func(w http.ResponseWriter, _ *http.Request) {
		for range 4 { // each one halves the stacks that are larger than they need to be
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprint(w, m.HeapInuse+m.StackInuse)
	})
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, mux)
}

const (
	chatAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-5.4","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":40,"total_tokens":290}}`
	chatChunk  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5.4","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}],"usage":null}` + "\n\n"
	chatLast   = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5.4","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n"
	chatUsage  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5.4","choices":[],"usage":{"prompt_tokens":250,"completion_tokens":200,"total_tokens":450}}` + "\n\n"
	streamed   = 200
)

// serveUpstream answers every chat at once: whole, or as a stream of 200 events; with ?hold it keeps the stream open after the first.
func serveUpstream() error {
	whole := []byte(fmt.Sprintf(chatAnswer, strings.Repeat("word ", 40)))
	return listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		c := http.NewResponseController(w)
		hold := bytes.Contains(body, []byte("hold the stream"))
		for i := range streamed {
			_, _ = io.WriteString(w, chatChunk)
			_ = c.Flush()
			if hold && i == 0 {
				<-r.Context().Done()
				return
			}
		}
		_, _ = io.WriteString(w, chatLast+chatUsage+"data: [DONE]\n\n")
	}))
}

// serveBare is the baseline.
func serveBare() error {
	to, err := url.Parse(os.Getenv("TBA_BENCH_UPSTREAM"))
	if err != nil {
		return err
	}
	p := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{
			MaxIdleConns: 2048, MaxIdleConnsPerHost: 2048, IdleConnTimeout: time.Minute, DisableCompression: true,
		},
		FlushInterval: -1,
		BufferPool:    copyBuffers{&sync.Pool{New: func() any { return make([]byte, 16<<10) }}},
	}
	return listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // without it some streamed answers break off
		p.ServeHTTP(w, r)
	}))
}

type copyBuffers struct{ pool *sync.Pool }

func (c copyBuffers) Get() []byte  { return c.pool.Get().([]byte) }
func (c copyBuffers) Put(p []byte) { c.pool.Put(p) } //nolint:staticcheck // the interface deals in slices

// get reads a number of a part.
func (p *part) get(b *testing.B, path string) float64 {
	b.Helper()
	resp, err := http.Get(p.url + path)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		b.Fatalf("%s: %q", path, text)
	}
	return n
}

func chatBody(size int, stream bool, extra string) []byte {
	text := extra + strings.Repeat("All work and no play makes Jack a dull boy. ", size/44)
	body, _ := json.Marshal(map[string]any{
		"model": "gpt-5.4", "messages": []map[string]string{{"role": "user", "content": text}}, "max_completion_tokens": 300,
	})
	if stream {
		body = append(body[:len(body)-1], `,"stream":true}`...)
	}
	return body
}

func benchClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true}}
}

// once makes one call and returns when its first byte came.
func once(c *http.Client, url string, body []byte) (first time.Duration, err error) {
	began := time.Now()
	req, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer sk-agent")
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var one [1]byte
	if _, err := io.ReadFull(resp.Body, one[:]); err != nil {
		return 0, fmt.Errorf("status %d %v: %w", resp.StatusCode, resp.Header, err)
	}
	first = time.Since(began)
	rest, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s%s", resp.StatusCode, one[:], rest)
	}
	return first, err
}

// sample is what one part did in one measured span.
type sample struct {
	perSecond float64
	cpu       float64 // µs of the part's processor time for each call
	whole     []time.Duration
	first     []time.Duration
}

func p50(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// drive lets n callers make calls for a span.
func drive(b *testing.B, c *http.Client, p *part, n int, span time.Duration, body []byte) sample {
	b.Helper()
	cpu := p.get(b, "/bench/cpu")
	var calls atomic.Int64
	var mu sync.Mutex
	var s sample
	ctx, cancel := context.WithTimeout(b.Context(), span)
	defer cancel()
	began := time.Now()
	var g sync.WaitGroup
	for range n {
		g.Go(func() {
			var whole, firsts []time.Duration
			for ctx.Err() == nil {
				at := time.Now()
				first, err := once(c, p.url, body)
				if err != nil {
					b.Errorf("%s: %v", p.name, err)
					return
				}
				whole, firsts = append(whole, time.Since(at)), append(firsts, first)
				calls.Add(1)
			}
			mu.Lock()
			defer mu.Unlock()
			s.whole, s.first = append(s.whole, whole...), append(s.first, firsts...)
		})
	}
	g.Wait()
	took := time.Since(began)
	done := max(float64(calls.Load()), 1)
	s.perSecond = done / took.Seconds()
	s.cpu = (p.get(b, "/bench/cpu") - cpu) / done
	return s
}

// rounds is how often bare and gateway take turns; each figure is the median of the rounds.
const rounds = 5

func compare(b *testing.B, n int, span time.Duration, body []byte) {
	up := launch(b, "upstream")
	env := "TBA_BENCH_UPSTREAM=" + up.url
	bare := launch(b, "bare", env)
	gate := launch(b, "gateway", env, "TBA_BENCH_DATA="+b.TempDir())
	c := benchClient()
	drive(b, c, bare, n, span/4, body)
	drive(b, c, gate, n, span/4, body)
	var speed, cpu, own, ownBare []float64
	var added, addedFirst []time.Duration
	for range rounds {
		x, y := drive(b, c, bare, n, span, body), drive(b, c, gate, n, span, body)
		if len(x.whole) == 0 || len(y.whole) == 0 {
			b.Fatal("no calls")
		}
		speed, cpu = append(speed, y.perSecond/x.perSecond), append(cpu, y.cpu/x.cpu)
		own, ownBare = append(own, y.perSecond), append(ownBare, x.perSecond)
		added = append(added, p50(y.whole)-p50(x.whole))
		addedFirst = append(addedFirst, p50(y.first)-p50(x.first))
	}
	for b.Loop() {
		if _, err := once(c, gate.url, body); err != nil {
			b.Fatal(err)
		}
	}
	mid := func(f []float64) float64 { slices.Sort(f); return f[len(f)/2] }
	b.ReportMetric(mid(speed), "×bare")
	b.ReportMetric(mid(cpu), "×cpu")
	b.ReportMetric(mid(own), "calls/s")
	b.ReportMetric(mid(ownBare), "bare-calls/s")
	b.ReportMetric(float64(p50(added).Microseconds()), "added-p50-µs")
	b.ReportMetric(float64(p50(addedFirst).Microseconds()), "added-first-byte-µs")
}

// BenchmarkCalls: targets ≥ 0.7 ×bare and ≤ 1.6 ×cpu at 64 callers, ≤ 400 added-p50-µs with one.
func BenchmarkCalls(b *testing.B) {
	for _, n := range []int{1, callers} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) { compare(b, n, 2*time.Second, chatBody(1<<10, false, "")) })
	}
}

// BenchmarkStreams: targets ≥ 0.8 ×bare for streams of 200 events, ≤ 1,000 added-first-byte-µs.
func BenchmarkStreams(b *testing.B) {
	for _, n := range []int{1, callers} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) { compare(b, n, 2*time.Second, chatBody(1<<10, true, "")) })
	}
}

// BenchmarkLongPrompt: target ≤ 2,000 added-p50-µs with a prompt of 50,000 tokens (200 KB).
func BenchmarkLongPrompt(b *testing.B) { compare(b, 1, 2*time.Second, chatBody(200<<10, false, "")) }

// BenchmarkOpenStreams: target ≤ 65,536 bytes of memory for each stream that is open.
func BenchmarkOpenStreams(b *testing.B) {
	const open = 1000
	up := launch(b, "upstream")
	gate := launch(b, "gateway", "TBA_BENCH_UPSTREAM="+up.url, "TBA_BENCH_DATA="+b.TempDir())
	bare := launch(b, "bare", "TBA_BENCH_UPSTREAM="+up.url)
	body := chatBody(1<<10, true, "hold the stream ")
	each := func(p *part) float64 {
		c := benchClient()
		before := p.get(b, "/bench/memory")
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var g sync.WaitGroup
		for range open {
			g.Go(func() {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/chat/completions", bytes.NewReader(body))
				req.Header.Set("Authorization", "Bearer sk-agent")
				resp, err := c.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				var one [1]byte
				if _, err := io.ReadFull(resp.Body, one[:]); err != nil || resp.StatusCode != http.StatusOK {
					b.Errorf("stream: %d %v", resp.StatusCode, err)
				}
			})
		}
		g.Wait()
		return (p.get(b, "/bench/memory") - before) / open
	}
	for b.Loop() {
		b.ReportMetric(each(bare), "bare-B/stream")
		b.ReportMetric(each(gate), "B/stream")
	}
}

// serveGateway is the gateway with its arbiter on a file journal, as tba serve runs it.
func serveGateway() error {
	text := fmt.Sprintf(benchFile, os.Getenv("TBA_BENCH_UPSTREAM"))
	c, err := config.LoadBytes("bench.yaml", []byte(text))
	if err != nil {
		return err
	}
	dir := os.Getenv("TBA_BENCH_DATA")
	store, err := filejournal.Open(dir, filejournal.Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := store.Init(ctx, engine.DefaultPool); err != nil {
		return err
	}
	e, err := engine.New(engine.Options{Store: store})
	if err != nil {
		return err
	}
	if err := e.Open(ctx, engine.DefaultPool, c.Pools[0].Policy); err != nil {
		return err
	}
	settings, err := gateway.NewSettings(c)
	if err != nil {
		return err
	}
	return listen(gateway.New(gateway.Options{
		Leaser: gateway.NewLocal(e), Settings: settings,
		Policy: func(string) *arbiter.Policy { return c.Pools[0].Policy },
	}))
}

// benchFile has every kind of limit in force, and none that is reached.
const benchFile = `
budget:
  global_tokens: 9_000_000_000_000
  global_usd: 9_000_000
  providers:
    openai:
      base_url: %s/v1
      allow_private: true
      rpm_ceiling: 100_000_000
      tpm_ceiling: 100_000_000_000
      max_concurrency: 1_000_000
      burst: 1
      models: {gpt-5.4: {}}
  agent_classes:
    default: {priority: medium}
`
