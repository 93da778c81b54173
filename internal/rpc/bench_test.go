package rpc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/filejournal"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// benchPolicy limits everything and binds nothing, so that every check is made.
func benchPolicy() *arbiter.Policy {
	huge := arbiter.Limit{Tokens: arbiter.MaxAmount, Nanos: arbiter.MaxAmount}
	return testPolicy(func(p *arbiter.Policy) {
		p.Global, p.Tasks = huge, huge
		p.Classes[2].Limit = huge
		for i := range p.Providers {
			p.Providers[i].Limit = huge
			p.Providers[i].Ceilings = arbiter.Ceilings{RPM: 1 << 40, TPM: 1 << 50, MaxConcurrent: 1 << 40}
		}
	})
}

func benchWorld(b *testing.B) *world {
	b.Helper()
	store, err := filejournal.Open(b.TempDir(), filejournal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	return newWorld(b, setup{policy: benchPolicy(), store: store, tcp: true})
}

func benchRequest() *tbav1.LeaseRequest {
	return &tbav1.LeaseRequest{AgentId: "agent-17", AgentClass: "chat", EstimatedTokens: 1500, TaskId: "task-1234", EstimatedOutputTokens: proto.Int64(500)}
}

// echoServer answers a request with the response it was given: the least that grpc-go can do for messages of these sizes.
type echoServer struct {
	tbav1.UnimplementedTokenBudgetArbiterServer
	answer *tbav1.LeaseResponse
}

func (e *echoServer) RequestLease(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
	return e.answer, nil
}

// echo is the baseline: a bare server that answers with a copy of a real grant.
func echo(b *testing.B) tbav1.TokenBudgetArbiterClient {
	b.Helper()
	w := benchWorld(b)
	answer := w.grant(b, benchRequest())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer()
	tbav1.RegisterTokenBudgetArbiterServer(s, &echoServer{answer: answer})
	go func() { _ = s.Serve(l) }()
	b.Cleanup(s.Stop)
	conn := w.dial(b, func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}, "")
	return tbav1.NewTokenBudgetArbiterClient(conn)
}

// callers shares b.N calls among n goroutines, each with a call of its own from begin, and reports calls a second and the median of a sample.
func callers(b *testing.B, n int, begin func() func() error) {
	b.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var sample []time.Duration
	b.ReportAllocs()
	spent := processor(b)
	b.ResetTimer()
	for i := range n {
		calls := b.N / n
		if i < b.N%n {
			calls++
		}
		call := begin()
		wg.Go(func() {
			var mine []time.Duration
			for k := range calls {
				began := time.Now()
				if err := call(); err != nil {
					b.Error(err)
					return
				}
				if k%8 == 0 {
					mine = append(mine, time.Since(began))
				}
			}
			mu.Lock()
			sample = append(sample, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	spent()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	slices.Sort(sample)
	if len(sample) > 0 {
		b.ReportMetric(float64(sample[len(sample)/2].Microseconds()), "p50-µs")
	}
}

// processor reports the processor time of the whole process per operation: client, server and journal. It is steadier than the
// throughput on a machine that does other things beside.
func processor(b *testing.B) func() {
	read := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := read()
	return func() { b.ReportMetric(float64((read()-began).Nanoseconds())/1000/float64(b.N), "cpu-µs/op") }
}

func benchEcho(b *testing.B, n int) {
	c := echo(b)
	m := benchRequest()
	callers(b, n, func() func() error {
		return func() error {
			_, err := c.RequestLease(context.Background(), m)
			return err
		}
	})
}

// perEntry reports how many commands share a journal entry, which is what a sync of the disk costs.
func perEntry(b *testing.B, w *world, commands int) {
	b.ReportMetric(float64(b.N*commands)/float64(max(w.engine.Stats()[0].Entries, 1)), "commands/entry")
}

func unaryLease(w *world) error {
	for {
		_, err := w.lease.RequestLease(context.Background(), benchRequest())
		if status.Code(err) != codes.Unavailable {
			return err
		}
	}
}

// benchUnary requests leases that nobody ends: they pile up, as they would not in life.
func benchUnary(b *testing.B, n int) {
	w := benchWorld(b)
	callers(b, n, func() func() error {
		return func() error { return unaryLease(w) }
	})
	perEntry(b, w, 1)
}

func BenchmarkEcho1(b *testing.B)    { benchEcho(b, 1) }
func BenchmarkUnary1(b *testing.B)   { benchUnary(b, 1) }
func BenchmarkEcho64(b *testing.B)   { benchEcho(b, 64) }
func BenchmarkUnary64(b *testing.B)  { benchUnary(b, 64) }
func BenchmarkEcho256(b *testing.B)  { benchEcho(b, 256) }
func BenchmarkUnary256(b *testing.B) { benchUnary(b, 256) }

// lessor runs whole leases, request and commit, of n callers on one session.
type lessor struct {
	x       *testSession
	answers []chan *tbav1.SessionResponse_Frame
}

func newLessor(b *testing.B, w *world, n int) *lessor {
	b.Helper()
	l := &lessor{x: openSession(b, w.lease), answers: make([]chan *tbav1.SessionResponse_Frame, n+1)}
	for i := range l.answers {
		l.answers[i] = make(chan *tbav1.SessionResponse_Frame, 1)
	}
	go func() { _ = l.x.receive(func(f *tbav1.SessionResponse_Frame) { l.answers[f.GetId()] <- f }) }()
	return l
}

// call repeats what the arbiter could not know, as every client must: a disk that others use too stalls at times.
func (l *lessor) call(id uint64, f *tbav1.SessionRequest_Frame) *tbav1.SessionResponse_Frame {
	for {
		l.x.push(f)
		if a := <-l.answers[id]; codes.Code(a.GetError().GetCode()) != codes.Unavailable {
			return a
		}
	}
}

func (l *lessor) lease(id uint64) error {
	f := l.call(id, requestFrame(id, benchRequest()))
	lease := f.GetLease()
	if lease.GetLeaseId() == "" {
		return fmt.Errorf("no lease: %v", f)
	}
	f = l.call(id, &tbav1.SessionRequest_Frame{Id: id, Call: &tbav1.SessionRequest_Frame_Commit{Commit: &tbav1.LeaseCommit{
		LeaseId: lease.GetLeaseId(), ActualTokens: proto.Int64(1300), LatencyMs: 2000, Outcome: tbav1.LeaseCommit_OK,
	}}})
	if c := f.GetCommit(); c == nil || c.GetResult() != tbav1.CommitResponse_RECORDED && c.GetResult() != tbav1.CommitResponse_ALREADY_RECORDED {
		return fmt.Errorf("commit: %v", f)
	}
	return nil
}

// BenchmarkSession256 counts whole leases of 256 callers on one session. Compare with the calls of BenchmarkEcho256.
func BenchmarkSession256(b *testing.B) {
	w := benchWorld(b)
	l := newLessor(b, w, 256)
	var turn atomic.Uint64
	callers(b, 256, func() func() error {
		id := turn.Add(1)
		return func() error { return l.lease(id) }
	})
	perEntry(b, w, 2)
}

// BenchmarkBeside alternates short rounds of the arbiter and of the echo, so that both meet the same machine whatever else it does, and
// reports the median of their ratios. The targets: 0.75 for unary calls, 1.5 for leases on a session.
func BenchmarkBeside(b *testing.B) {
	for _, test := range []struct {
		name    string
		callers int
		session bool
	}{{"Unary64", 64, false}, {"Unary256", 256, false}, {"Session256", 256, true}} {
		b.Run(test.name, func(b *testing.B) {
			w, e := benchWorld(b), echo(b)
			ours := func(uint64) error {
				return unaryLease(w)
			}
			if test.session {
				ours = newLessor(b, w, test.callers).lease
			}
			theirs := func(uint64) error {
				_, err := e.RequestLease(context.Background(), benchRequest())
				return err
			}
			round := func(call func(uint64) error) time.Duration {
				began := time.Now()
				var wg sync.WaitGroup
				for i := range test.callers {
					wg.Go(func() {
						for range max(4096/test.callers, 1) {
							if err := call(uint64(i + 1)); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(began)
			}
			round(ours)
			round(theirs)
			var ratios []float64
			for b.Loop() {
				ratios = append(ratios, float64(round(theirs))/float64(round(ours)))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-echo")
		})
	}
}
