package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/filejournal"
	"github.com/token-budget-arbiter/tba/internal/gateway"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/rpc"
)

// server is an arbiter in this process: pools, ports and what turns the configuration into both.
type server struct {
	log   *slog.Logger
	ports *ports
	store journal.Store
	pools *engine.Engine
	api   *rpc.Server
	grpc  *grpc.Server
	http  *http.Server
	ops   *opsPort
	proxy *proxy
	dir   string // of the journal, "" in memory
	tls   bool   // on the HTTP and gRPC ports

	drainTimeout time.Duration
	inForce      *config.Config                // of the reloader's goroutine, once it runs
	names        atomic.Pointer[config.Config] // inForce for whoever asks for models
	configError  atomic.Pointer[string]        // why the file on disk is not in force
	failed       chan error                    // a port that stopped serving
}

// startOptions say what to start.
type startOptions struct {
	config   *config.Config
	log      *slog.Logger
	create   bool   // make journals that are absent: dev does, serve never
	file     string // of the configuration, for messages; "" for none
	warnings []string
	place    *placement // dev: the providers are mocks
}

// start brings an arbiter up. It returns when the ports serve and every pool can grant, or with everything taken down again.
func start(ctx context.Context, o startOptions) (up *server, err error) {
	settings := o.config.Settings
	keys, err := keyring(o.config.Keys)
	if err != nil {
		return nil, err
	}
	cert, err := serverTLS(settings.TLS)
	if err != nil {
		return nil, err
	}
	dir, memory, err := place(settings.Journal)
	if err != nil {
		return nil, err
	}
	s := &server{log: o.log, inForce: o.config, drainTimeout: time.Duration(settings.DrainTimeout), failed: make(chan error, 3)}
	s.names.Store(o.config)
	if s.ports, err = bind(settings.Listen, keys); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.abandon()
		}
	}()
	s.ops = newOpsPort(s.log)
	s.ops.serve(s.ports.ops, s.failed)

	tokens := engine.NewTokenKeys()
	if memory {
		s.store = journal.NewMemory(journal.MemoryOptions{})
		o.warnings = append(o.warnings, "the journal is in memory only: what is granted and spent is forgotten when this process ends")
	} else {
		var size filejournal.Options
		if o.create { // a journal to try things need not take 100 MB of a temporary folder
			size.SegmentBytes = 4 << 20
		}
		folder, err := openFolder(dir, size)
		if err != nil {
			return nil, err
		}
		s.store, s.dir = folder, dir
	}
	if memory || o.create {
		err = s.createPools(ctx, dir, o.config)
	} else {
		err = s.requirePools(ctx, dir, o)
	}
	if err != nil {
		return nil, err
	}
	if !memory {
		var made bool
		if tokens, made, err = tokenKeys(dir); err != nil {
			return nil, err
		}
		if made {
			s.log.Info("token keys made", "file", dir+"/"+tokenKeysName)
		}
	}
	if err := s.openPools(ctx, tokens, o); err != nil {
		return nil, err
	}
	kind, _, _ := strings.Cut(settings.Journal, ":")
	addresses, failed := perAddress(o.config), failedAuth() // one account of each address for both
	s.proxy, err = newProxy(o.config, o.place, s.ops.gateway, gateway.Options{
		Leaser: gateway.NewLocal(s.pools), Keys: keys, Addresses: addresses, FailedAuth: failed, Policy: s.policy, Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	unreadKeys(s.log, o.config, o.place)
	s.api = rpc.New(rpc.Options{
		Engine: s.pools, Reader: s.pools, Feed: s.pools, Keys: keys, Addresses: addresses, FailedAuth: failed, Models: s.model, Logger: s.log,
		About: rpc.About{
			Version: build().Version, Journal: kind, Writer: writerName(os.Getpid()), Warnings: o.warnings,
			ConfigError: func() string {
				if text := s.configError.Load(); text != nil {
					return *text
				}
				return ""
			},
		},
	})
	var creds credentials.TransportCredentials
	if cert != nil {
		creds = credentials.NewTLS(cert.Clone())
	}
	s.grpc = s.api.GRPC(creds)
	s.http, s.tls = newHTTP(s.proxy.before(s.api.HTTP(nil)), cert, s.log), cert != nil
	s.serve()
	s.api.SetServing(true)
	s.ops.Watch(s.pools, s.pools)
	s.ops.SetReady(s.pools.Ready)
	s.log.Info("ready", "http", s.ports.http.Addr().String(), "grpc", s.ports.grpc.Addr().String(), "ops", s.ports.ops.Addr().String(),
		"pools", s.pools.Pools(), "journal", settings.Journal, "version", build().Version)
	return s, nil
}

// model is the name that the policy in force has for a model, at the preferred provider if that has it.
func (s *server) model(pool, provider, id string) (string, error) {
	p, ok := s.names.Load().Pool(pool)
	if !ok {
		return id, nil // gone from the file, served until the next start
	}
	if provider != "" {
		if name, err := p.ModelID(provider, id); err == nil {
			return name, nil
		}
	}
	return p.ModelID("", id)
}

// policy is the one in force of a pool, nil for none: a priority is bounded by it.
func (s *server) policy(pool string) *arbiter.Policy {
	if p, ok := s.names.Load().Pool(pool); ok {
		return p.Policy
	}
	return nil
}

// serve runs both servers until their listeners close.
func (s *server) serve() {
	go func() {
		if err := s.grpc.Serve(identity.Listener(s.ports.grpc, s.api.Addresses)); err != nil {
			s.failed <- fmt.Errorf("serve gRPC on %s: %w", s.ports.grpc.Addr(), err)
		}
	}()
	go serveHTTP(s.http, s.ports.http, s.failed)
}

func (s *server) createPools(ctx context.Context, dir string, c *config.Config) error {
	for _, p := range c.Pools {
		err := s.store.Init(ctx, p.Name)
		if err != nil && !errors.Is(err, journal.ErrExists) {
			return fail(exitFailure, "look at the folder and its permissions: --data "+quote(dir), "create journal: %w", err)
		}
	}
	return nil
}

// requirePools refuses to serve a pool without its journal.
func (s *server) requirePools(ctx context.Context, dir string, o startOptions) error {
	have, err := s.store.Pools(ctx)
	if err != nil {
		return fail(exitFailure, "", "%w", err)
	}
	for _, p := range o.config.Pools {
		if !oneOf(p.Name, have...) {
			return absent(dir, p.Name, o.file, journal.ErrUninitialised)
		}
	}
	return nil
}

func (s *server) openPools(ctx context.Context, tokens engine.TokenKeys, o startOptions) error {
	var err error
	hooks := s.ops.Hooks()
	hooks.Answered = logDecisions(s.log, hooks.Answered)
	s.pools, err = engine.New(engine.Options{
		Store: s.store, Writer: writerName(os.Getpid()), TokenKeys: tokens, Logger: s.log, Hooks: hooks,
		DrainTimeout: max(s.drainTimeout, 1), // 0s in the file is no wait; 0 for the engine would be its default
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	for _, p := range o.config.Pools {
		began := time.Now()
		err := s.pools.Open(ctx, p.Name, p.Policy)
		var corrupt *journal.CorruptError
		switch {
		case errors.As(err, &corrupt):
			return fail(exitFailure, "restore the data folder from a backup; what is there is kept as it is", "%w", err)
		case err != nil:
			return fail(exitFailure, "", "%w", err)
		}
		s.log.Debug("pool open", "pool", p.Name, "took", time.Since(began).String())
	}
	return nil
}

// drain takes the arbiter down in order: no new calls and leases, commits until the running ones have ended or drain_timeout is
// over, then the ports. Calls of the gateway end first: they may need another lease on their way. The error says what could not be saved.
func (s *server) drain(ctx context.Context) error {
	s.log.Info("draining", "running_leases", s.running(), "for_at_most", s.drainTimeout.String())
	s.ops.SetReady(func() error { return errors.New("draining: the process is going down") })
	s.api.Drain(s.drainTimeout)
	calls, cut := context.WithTimeout(ctx, s.drainTimeout)
	defer cut()
	s.proxy.drained(calls, s.log)
	err := s.pools.Drain(ctx)
	s.api.Close()
	stopping, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	graceful := make(chan struct{})
	go func() { s.grpc.GracefulStop(); close(graceful) }()
	if e := s.http.Shutdown(stopping); e != nil {
		s.http.Close()
	}
	select {
	case <-graceful:
	case <-stopping.Done():
		s.grpc.Stop()
	}
	s.ops.close()
	s.ports.close()
	if e := s.store.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("close journal: %w", e))
	}
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}

// running is how many leases run in all pools.
func (s *server) running() (n int64) {
	for _, p := range s.pools.Stats() {
		n += p.Running
	}
	return n
}

// abandon takes down what a failed start had put up.
func (s *server) abandon() {
	if s.grpc != nil {
		s.grpc.Stop()
	}
	if s.http != nil {
		s.http.Close()
	}
	if s.pools != nil {
		s.pools.Close()
	}
	if s.ops != nil {
		s.ops.close()
	}
	if s.store != nil {
		s.store.Close()
	}
	s.ports.close()
}

// writerName names a process of this machine in the journal: host and process, in the characters that a name may have.
func writerName(pid int) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "tba"
	}
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, host)
	if len(clean) > 100 {
		clean = clean[:100]
	}
	return clean + "-" + strconv.Itoa(pid)
}
