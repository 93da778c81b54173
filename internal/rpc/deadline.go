package rpc

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Deadlines gives each part of an exchange its own deadline: body for the whole request body, write for each write and flush. So neither a
// body that comes byte by byte nor a reader that stalls holds a goroutine for good, while long waits and streams live on.
func Deadlines(next http.Handler, body, write time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w), within: write, shared: r.ProtoMajor > 1}
		_ = out.control.SetWriteDeadline(time.Time{}) // of the exchange before; a connection without deadlines, as in tests, just has none
		if r.Body != nil && r.Body != http.NoBody {
			_ = out.control.SetReadDeadline(time.Now().Add(body))
			r.Body = &deadlineBody{ReadCloser: r.Body, control: out.control}
		}
		next.ServeHTTP(out, r)
	})
}

type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
	// shared is a connection with other streams: HTTP/2 resets a stream when its write deadline passes, though nothing is being written.
	shared bool
}

// Unwrap lets an http.ResponseController reach the connection.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineWriter) Write(p []byte) (int, error) {
	defer w.bounded()()
	return w.ResponseWriter.Write(p)
}

// FlushError sends what there is; an http.ResponseController calls it.
func (w *deadlineWriter) FlushError() error {
	defer w.bounded()()
	return w.control.Flush()
}

// Flush is FlushError for an http.Flusher.
func (w *deadlineWriter) Flush() { _ = w.FlushError() }

// bounded sets the deadline, and returns what takes it off where it must not outlast the write.
func (w *deadlineWriter) bounded() (done func()) {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.within))
	if !w.shared {
		return func() {}
	}
	return func() { _ = w.control.SetWriteDeadline(time.Time{}) }
}

// deadlineBody lifts the read deadline once the body is complete: from then on the server reads only to notice that the client has left.
type deadlineBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *deadlineBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
