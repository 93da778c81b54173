package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/gateway"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// sidecarOptions are the flags of gateway.
type sidecarOptions struct {
	arbiter string
	tls     bool
	ca      string
}

func (a *app) gatewayCommand() *cobra.Command {
	var o sidecarOptions
	cmd := &cobra.Command{
		Use: "gateway --arbiter ADDR", Short: "Run the gateway alone, with an arbiter across the network", Args: noArgs,
		Long: `Runs the gateway beside the agents: their calls go through it to the providers, and it leases each from the arbiter at ADDR (its
gRPC port). It reads the providers, ladders and rules of the gateway from the same configuration as the arbiter; budgets and limits are
the arbiter's alone, and so are credentials: an agent's key is passed on to it. It has no journal.

It is ready when the arbiter answers. While that is away, calls are refused with 503 and may be tried again.`,
		Example: "  tba gateway --arbiter tba.internal:7481 --arbiter-tls -c tba.yaml\n  tba gateway --arbiter 127.0.0.1:7481 --listen-http :0 --listen-ops :0",
	}
	configFlag(cmd.Flags())
	settings(cmd.Flags())
	for _, name := range []string{"journal", "data", "listen-grpc"} { // the file of the arbiter may have them
		_ = cmd.Flags().MarkHidden(name)
	}
	cmd.Flags().StringVar(&o.arbiter, "arbiter", "", "address of the arbiter's gRPC port, host:port")
	cmd.Flags().BoolVar(&o.tls, "arbiter-tls", false, "speak TLS with the arbiter")
	cmd.Flags().StringVar(&o.ca, "arbiter-ca", "", "PEM file with the authority that signed the arbiter's certificate (means --arbiter-tls)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.arbiter == "" {
			return fail(exitUsage, "tba gateway --arbiter 127.0.0.1:7481, or tba serve for an arbiter with a gateway", "--arbiter: say where the arbiter is")
		}
		if _, _, err := net.SplitHostPort(o.arbiter); err != nil {
			return fail(exitUsage, "tba gateway --arbiter 127.0.0.1:7481", "--arbiter %q is no address such as 127.0.0.1:7481: the gRPC port of the arbiter", o.arbiter)
		}
		creds, err := o.credentials()
		if err != nil {
			return err
		}
		c, err := a.load(cmd.Flags())
		if err != nil {
			return err
		}
		stop := stopSignals()
		s, err := startSidecar(c, o.arbiter, creds, logger(a.err, c.Settings.Log))
		if err != nil {
			return err
		}
		watching, done := context.WithCancel(cmd.Context())
		defer done()
		s.watch(watching, a.file(cmd.Flags()), a.sources(cmd.Flags()))
		return serveUntil(cmd.Context(), stop, s.failed, s.log, s.drain)
	}
	return cmd
}

// credentials of the connection to the arbiter; nil is in the clear.
func (o *sidecarOptions) credentials() (*tls.Config, error) {
	if !o.tls && o.ca == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	if o.ca != "" {
		pem, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, fail(exitUsage, "", "--arbiter-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fail(exitUsage, "", "--arbiter-ca: %s holds no PEM certificate", o.ca)
		}
	}
	return c, nil
}

// sidecar is a gateway whose arbiter is elsewhere.
type sidecar struct {
	log    *slog.Logger
	ports  *ports
	ops    *opsPort
	proxy  *proxy
	http   *http.Server
	remote *gateway.Remote
	health *grpc.ClientConn
	target string

	drainTimeout time.Duration
	inForce      *config.Config // of the watcher's goroutine, once it runs
	failed       chan error     // a port that stopped serving
}

// startSidecar brings a gateway up. The arbiter need not be there yet.
func startSidecar(c *config.Config, target string, creds *tls.Config, log *slog.Logger) (up *sidecar, err error) {
	cert, err := serverTLS(c.Settings.TLS)
	if err != nil {
		return nil, err
	}
	s := &sidecar{
		log: log, target: target, inForce: c, drainTimeout: time.Duration(c.Settings.DrainTimeout),
		failed: make(chan error, 2), ports: &ports{file: c.Settings.Listen.AddrFile},
	}
	open := func(bound net.Addr, flag string) error {
		if identity.IsLoopback(bound) || len(c.Keys) > 0 {
			return nil
		}
		return fmt.Errorf("%s is %s, which others can reach, and the configuration has no auth.keys: everybody could spend the arbiter's budgets", flag, bound)
	}
	l := c.Settings.Listen
	if err := s.ports.take(open, wanted{&s.ports.ops, l.Ops, "--listen-ops"}, wanted{&s.ports.http, l.HTTP, "--listen-http"}); err != nil {
		return nil, err
	}
	s.ops = newOpsPort(log)
	s.ops.serve(s.ports.ops, s.failed)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.remote, err = gateway.DialRemote(target, gateway.RemoteOptions{TLS: creds}); err != nil {
		return nil, fail(exitUsage, "tba gateway --arbiter 127.0.0.1:7481", "--arbiter: %w", err)
	}
	plain := insecure.NewCredentials()
	if creds != nil {
		plain = credentials.NewTLS(creds.Clone())
	}
	if s.health, err = grpc.NewClient(target, grpc.WithTransportCredentials(plain)); err != nil {
		return nil, fail(exitUsage, "tba gateway --arbiter 127.0.0.1:7481", "--arbiter: %w", err)
	}
	s.proxy, err = newProxy(c, nil, s.ops.gateway, gateway.Options{Leaser: s.remote, Addresses: perAddress(c), FailedAuth: failedAuth(), Logger: log})
	if err != nil {
		return nil, err
	}
	unreadKeys(log, c, nil)
	s.http = newHTTP(s.proxy.before(http.HandlerFunc(s.elsewhere)), cert, log)
	go serveHTTP(s.http, s.ports.http, s.failed)
	s.ops.SetReady(s.ready)
	if err := s.ready(); err != nil {
		log.Warn("started without the arbiter: calls are refused until it answers", "arbiter", target, "error", err)
	}
	log.Info("gateway serves", "http", s.ports.http.Addr().String(), "ops", s.ports.ops.Addr().String(), "arbiter", target, "version", build().Version)
	return s, nil
}

// readyWithin bounds how long the arbiter may take to say how it is.
const readyWithin = 2 * time.Second

// ready asks the arbiter whether it grants: without it a gateway can serve nothing.
func (s *sidecar) ready() error {
	ctx, done := context.WithTimeout(context.Background(), readyWithin)
	defer done()
	got, err := healthpb.NewHealthClient(s.health).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("the arbiter at %s does not answer: %w", s.target, err)
	}
	if got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the arbiter at %s grants nothing now (%s): its /readyz says why", s.target, got.GetStatus())
	}
	return nil
}

// elsewhere answers for the paths of the API, which a sidecar does not have.
func (s *sidecar) elsewhere(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(map[string]any{ // a client that is gone cannot be told
		"type": "about:blank", "title": http.StatusText(http.StatusNotFound), "status": http.StatusNotFound, "reason": "no_such_path",
		"detail": "this is a gateway alone: leases and reads are at the arbiter's own HTTP port; calls to models are under /v1, /anthropic, /gemini, /tools or the name of a provider",
	})
}

// watch takes over changes of the configuration file until ctx ends, as serve does.
func (s *sidecar) watch(ctx context.Context, path string, sources config.Sources) {
	changed := func(c *config.Config, err error) error {
		if err == nil {
			err = s.takeOver(c)
		}
		s.ops.Reloaded(err)
		if err != nil {
			s.log.Error("configuration not taken over: the one before stays in force", "file", path, "error", oneLine(err))
			return nil
		}
		s.log.Info("configuration taken over", "file", path)
		return nil
	}
	followFile(ctx, config.Watcher{Path: path, Sources: sources, Changed: changed}, s.inForce, func() {})
}

func (s *sidecar) takeOver(c *config.Config) error {
	if len(c.Keys) == 0 && len(s.inForce.Keys) > 0 && !identity.IsLoopback(s.ports.http.Addr()) {
		return errors.New("auth.keys is gone from the file, and others can reach this gateway: restart it on loopback addresses, or keep the keys")
	}
	calls, err := s.proxy.settings(c)
	if err != nil {
		return err
	}
	s.proxy.adopt(c, calls, nil, perAddress(c))
	unreadKeys(s.log, c, nil)
	if c.Settings != s.inForce.Settings {
		s.log.Warn("process settings have changed in the file: they count from the next start")
	}
	s.inForce = c
	return nil
}

// drain takes the gateway down: no new calls, those that run end or are cut when drain_timeout is over, their commits reach the arbiter.
func (s *sidecar) drain(ctx context.Context) error {
	s.log.Info("draining", "for_at_most", s.drainTimeout.String())
	s.ops.SetReady(func() error { return errors.New("draining: the process is going down") })
	calls, cut := context.WithTimeout(ctx, s.drainTimeout)
	defer cut()
	s.proxy.drained(calls, s.log)
	stopping, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if err := s.http.Shutdown(stopping); err != nil {
		s.http.Close()
	}
	s.close()
	s.log.Info("stopped")
	return nil
}

// close gives back what was taken.
func (s *sidecar) close() {
	if s.http != nil {
		s.http.Close()
	}
	if s.remote != nil {
		s.remote.Close()
	}
	if s.health != nil {
		s.health.Close()
	}
	s.ops.close()
	s.ports.close()
}
