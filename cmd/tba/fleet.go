package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/demo"
	"github.com/token-budget-arbiter/tba/internal/mockprovider"
)

// fleet lets the demo's agents work against a running server and prints what came of it.
func (a *app) fleet(ctx context.Context, s *server, o devOptions, scale demo.Scale, mocks *mockprovider.Server, words io.Writer, stop <-chan os.Signal) error {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		summary demo.Summary
		err     error
	}
	finished := make(chan outcome, 1)
	go func() {
		summary, err := demo.Run(working, demo.Options{
			Arbiter: s.ports.addresses().GRPC, Gateway: s.url(), Mocks: mocks, Scale: scale, For: o.length, Live: words, Seed: 1, OpenLeases: s.openLeases,
		})
		finished <- outcome{summary, err}
	}()
	var fault error
	var end outcome
	select {
	case end = <-finished:
	case <-stop:
		cancel()
	case fault = <-s.failed:
		cancel()
	}
	if working.Err() != nil {
		select {
		case end = <-finished:
		case <-stop:
			return silent(exitInterrupted)
		}
		if errors.Is(end.err, context.Canceled) {
			end.err = silent(exitInterrupted) // --for was not over: what there is is printed, and proves nothing
		}
	}
	fault = errors.Join(fault, end.err, a.printSummary(end.summary))
	return errors.Join(fault, s.drain(ctx))
}

func (a *app) printSummary(s demo.Summary) error {
	if s.Agents == 0 {
		return nil // the fleet never began
	}
	if a.format == "table" {
		fmt.Fprintln(a.out)
		return s.WriteText(a.out)
	}
	return a.printData(s)
}

// openLeases counts the running leases of every pool, every answer given so far included.
func (s *server) openLeases(ctx context.Context) (n int64, err error) {
	for _, pool := range s.pools.Pools() {
		err = errors.Join(err, s.pools.View(ctx, pool, func(st *arbiter.State) error {
			counts := st.Counts()
			n += counts.Running()
			return nil
		}))
	}
	return n, err
}

// url is the root of the HTTP port, which is the gateway's too.
func (s *server) url() string {
	if s.tls {
		return "https://" + s.ports.addresses().HTTP
	}
	return "http://" + s.ports.addresses().HTTP
}
