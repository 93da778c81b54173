package client_test

import (
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// BenchmarkLease is one lease and its commit by 256 callers, over loopback; the
// arbiter of the tests decides nothing, so this is the price of the way alone.
func BenchmarkLease(b *testing.B) {
	for name, opts := range map[string][]client.Option{"session": nil, "unary": {client.WithUnary()}} {
		b.Run(name, func(b *testing.B) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			f := newFake()
			f.stop()
			f.srv = grpc.NewServer()
			tbav1.RegisterTokenBudgetArbiterServer(f.srv, f)
			go func() { _ = f.srv.Serve(lis) }()
			defer f.stop()
			c, err := client.Dial(lis.Addr().String(), opts...)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			const callers = 256
			var work sync.WaitGroup
			b.ResetTimer()
			for i := range callers {
				work.Go(func() {
					for n := i; n < b.N; n += callers {
						l, err := c.Acquire(b.Context(), ask)
						if err != nil {
							b.Error(err)
							return
						}
						if _, err := l.Commit(b.Context(), client.Usage{Output: 5}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			work.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "leases/s")
		})
	}
}
