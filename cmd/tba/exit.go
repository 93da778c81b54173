package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/token-budget-arbiter/tba/internal/config"
)

// Exit codes. They are part of the interface: docs/cli.md lists them and testdata/exit.txtar holds every one.
const (
	exitOK           = 0
	exitFailure      = 1
	exitUsage        = 2   // unknown command or flag, or a value that cannot be read
	exitConfig       = 3   // the configuration is absent or wrong
	exitUnreachable  = 4   // nobody answers at the server's address
	exitUnauthorised = 5   // no key, a wrong one, or one that may not do this
	exitNotFound     = 6   // no such pool, lease, key
	exitDenied       = 7   // a budget or the policy says no
	exitTimeout      = 8   // deferred, and the time to wait is over
	exitInterrupted  = 130 // by a signal
)

// failure is an error with its exit code and the command that leads on.
type failure struct {
	code int
	err  error  // nil: everything has been said already
	next string // a command or a sentence, "" for none
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// fail makes an error that ends the program with a code. next is a command to try, "" for none.
func fail(code int, next, format string, args ...any) error {
	return &failure{code: code, next: next, err: fmt.Errorf(format, args...)}
}

// silent ends the program with a code whose reason has been printed.
func silent(code int) error { return &failure{code: code} }

// report prints an error for people and returns its exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var f *failure
	var faults config.Faults
	switch {
	case errors.As(err, &f) && f.err == nil:
		return f.code
	case errors.As(err, &faults): // they have file, line and caret: nothing may be put before them
		faults.Print(w)
		next, code := "tba config explain KEY says what a key means", exitConfig
		if f != nil {
			next, code = f.next, f.code
		}
		fmt.Fprintf(w, "tba: the configuration is wrong (%s)\n", plural(len(faults), "fault"))
		hint(w, next)
		return code
	case f != nil:
		fmt.Fprintf(w, "tba: %v\n", err)
		hint(w, f.next)
		return f.code
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(w, "tba: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(w, "tba: %v\n", err)
	return exitFailure
}

func hint(w io.Writer, next string) {
	if next != "" {
		fmt.Fprintf(w, "next: %s\n", next)
	}
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
