// Command tba: one binary with dev, serve, init, config, journal, lease and the reads of a running server. Flags, wiring, printing; nothing else.
//
// What goes where: data to stdout, in the form that -o names; messages, logs and errors to stderr. An error says what
// failed, where and why, then the command that leads on. Exit codes are those of exit.go.
package main

import (
	"io"
	"log"
	"os"
	_ "time/tzdata" // budget periods begin in time zones that a bare container does not know
)

func main() {
	// Only net/http's client writes here, unasked: the beginning of what a provider sends on an idle connection. That may be text of an answer.
	log.SetOutput(io.Discard)
	os.Exit(run(os.Args[1:]))
}

// run is the whole program but for the exit, so that tests are the program too.
func run(args []string) int {
	a := &app{out: os.Stdout, err: os.Stderr, environ: os.Environ()}
	return a.run(args)
}
