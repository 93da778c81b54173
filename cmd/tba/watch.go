package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// reading shows something once, or for the nth time (from 0) with --watch; once is -1.
type reading func(ctx context.Context, frame *app, n int) error

const once = -1

// watching adds --watch and --interval to a command that reads. With --watch, show is called again and again until a
// signal. follow says that each reading has only what is new.
func (a *app) watching(cmd *cobra.Command, follow bool, show reading) {
	var watch bool
	var every time.Duration
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again until interrupted")
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "how often with --watch")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interrupt(cmd.Context())
		defer stop()
		if !watch {
			return show(ctx, a, once)
		}
		if every < 100*time.Millisecond {
			return fail(exitUsage, "", "--interval %v: at least 100ms", every)
		}
		return a.again(ctx, every, follow, show)
	}
}

// again redraws on a terminal; elsewhere it appends: a table after a blank line, one JSON document after the other, YAML
// documents, and of csv the header once. A failure in between is told and the next try made: a server may restart.
func (a *app) again(ctx context.Context, every time.Duration, follow bool, show reading) error {
	redraw := !follow && a.format == "table" && isTerminal(a.out)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		var buf bytes.Buffer
		frame := *a
		frame.out = &buf
		frame.noHeaders = a.noHeaders || n > 0 && (follow || a.format == "csv")
		if redraw {
			frame.out = &screen{Buffer: &buf, of: a.out}
		}
		err := show(ctx, &frame, n)
		switch {
		case ctx.Err() != nil:
			return context.Canceled
		case err != nil && n == 0:
			return err
		case err != nil:
			buf.Reset()
			a.note("%s: %v", time.Now().Format(time.TimeOnly), err)
		}
		switch {
		case redraw && buf.Len() > 0:
			_, err = fmt.Fprintf(a.out, "\x1b[H\x1b[J%s\n\n%s", time.Now().Format(time.DateTime)+"   every "+every.String()+", Ctrl-C ends it", buf.Bytes())
		case n > 0 && !follow && a.format == "table":
			_, err = fmt.Fprintf(a.out, "\n%s", buf.Bytes())
		case n > 0 && a.format == "yaml" && buf.Len() > 0:
			_, err = fmt.Fprintf(a.out, "---\n%s", buf.Bytes())
		default:
			_, err = a.out.Write(buf.Bytes())
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		select {
		case <-ctx.Done():
			return context.Canceled
		case <-tick.C:
		}
	}
}

// screen gathers a frame and still answers as the terminal it is for, so that it keeps its colours.
type screen struct {
	*bytes.Buffer
	of io.Writer
}

func (s *screen) Fd() uintptr {
	if f, ok := s.of.(*os.File); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

func (s *screen) Close() error { return nil }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
