package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the arbiter", Args: noArgs,
		Long: `Runs the arbiter with the configuration FILE: the gateway and JSON over HTTP on 7480, gRPC on 7481, health and metrics on
7482. It is ready when /readyz on the ops port answers 200.

SIGTERM and SIGINT drain: no new calls and leases, commits until the running leases have ended or drain_timeout is over; exit 0.
A second signal ends it at once. SIGHUP reads the configuration again; a changed file is taken over by itself.`,
		Example: "  tba serve -c tba.yaml\n  tba serve -c tba.yaml --data /var/lib/tba --listen-http 127.0.0.1:8080",
	}
	configFlag(cmd.Flags())
	settings(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path := a.file(cmd.Flags())
		c, err := a.load(cmd.Flags())
		if err != nil {
			return err
		}
		if c.Settings.Journal == "" {
			return fail(exitConfig, "tba serve -c "+quote(path)+" --data DIR, or journal: file:DIR in the file",
				"%s names no journal: grants and commits must be remembered somewhere", path)
		}
		stop := stopSignals()
		s, err := startOrStop(cmd.Context(), startOptions{config: c, log: logger(a.err, c.Settings.Log), file: path}, stop)
		if err != nil {
			return err
		}
		watching, done := context.WithCancel(cmd.Context())
		defer done()
		s.watchConfig(watching, path, a.sources(cmd.Flags()))
		return s.until(cmd.Context(), stop)
	}
	return cmd
}

// stopSignals gets SIGINT and SIGTERM from now on.
func stopSignals() <-chan os.Signal {
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c
}

// startOrStop is start that a signal ends: a long journal may have to be read. Nothing was answered by then.
func startOrStop(ctx context.Context, o startOptions, stop <-chan os.Signal) (*server, error) {
	type outcome struct {
		server *server
		err    error
	}
	started := make(chan outcome, 1)
	go func() {
		s, err := start(ctx, o)
		started <- outcome{s, err}
	}()
	select {
	case x := <-started:
		return x.server, x.err
	case <-stop:
		return nil, silent(exitInterrupted)
	}
}

// until serves until a signal, ctx's end or a fault of a port, then drains. A second signal ends it at once: what was
// answered is in the journal.
func (s *server) until(ctx context.Context, stop <-chan os.Signal) error {
	return serveUntil(ctx, stop, s.failed, s.log, s.drain)
}

// serveUntil is until for any server.
func serveUntil(ctx context.Context, stop <-chan os.Signal, failed <-chan error, log *slog.Logger, drain func(context.Context) error) error {
	var fault error
	select {
	case sig := <-stop:
		log.Info("signal", "signal", sig.String())
	case fault = <-failed:
		log.Error("a port has failed", "error", fault)
	case <-ctx.Done():
	}
	drained := make(chan error, 1)
	go func() { drained <- drain(context.WithoutCancel(ctx)) }()
	select {
	case err := <-drained:
		return errors.Join(fault, err)
	case sig := <-stop:
		log.Warn("second signal: stopped at once", "signal", sig.String())
		return silent(exitInterrupted)
	}
}
