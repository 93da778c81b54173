package main

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Times of the gateway's calls. There is none for a whole call: a model may write for an hour. Each part has its own.
const (
	bodyWithin  = time.Minute      // for a request body, which may be megabytes
	writeWithin = 30 * time.Second // for one write: an agent that takes nothing for longer is cut off, and its call settled
)

// patient gives each part of a call its own deadline, so that neither a body that comes byte by byte nor an agent that reads nothing
// holds a goroutine, a connection and a lease for good.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &patientWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		if r.Body != nil && r.Body != http.NoBody {
			_ = out.control.SetReadDeadline(time.Now().Add(bodyWithin)) // a connection without deadlines just has none
			r.Body = &patientBody{ReadCloser: r.Body, control: out.control}
		}
		// A deadline of this call must not meet the next one on the connection.
		defer func() { _ = out.control.SetWriteDeadline(time.Time{}) }()
		next.ServeHTTP(out, r)
	})
}

type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap lets an http.ResponseController reach the connection: flushes go there.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeWithin))
	return w.ResponseWriter.Write(p)
}

// patientBody lifts the deadline once the body is complete: from then on the server reads only to notice that the agent has left.
type patientBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *patientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
