package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/internal/gateway"
)

// smuggled is the body of the request that hides behind another one. No provider may ever get it as a request of its own.
const smuggled = `{"model":"gpt-5.4","messages":[{"role":"user","content":"SMUGGLED"}],"max_completion_tokens":5}`

// hidden is that request in full.
var hidden = fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled)

// chunks is hello in one chunk, and the end.
var chunks = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hello), hello)

// smuggling is a corpus of requests on which servers are known to disagree where they end. up is how many calls may reach the provider:
// the visible one or none. status is the first answer's, 0 for a connection that is just closed.
var smuggling = []struct {
	name   string
	raw    string
	up     int
	status int
}{
	{"a plain call", call("Content-Length: "+size, hello), 1, 200},
	{"a chunked call", call("Transfer-Encoding: chunked", chunks), 1, 200},
	// length and chunks
	{"length covers the end, chunks do not", call("Content-Length: "+strconv.Itoa(len(chunks)+len(hidden))+"\r\nTransfer-Encoding: chunked", chunks+hidden), 1, 200},
	{"chunks first, then length", call("Transfer-Encoding: chunked\r\nContent-Length: 4", chunks+hidden), 1, 200},
	{"chunked without length, then more", call("Transfer-Encoding: chunked", chunks+hidden), 1, 200},
	{"empty chunks, then more", call("Transfer-Encoding: chunked\r\nContent-Length: "+size, "0\r\n\r\n"+hidden), 0, 400},
	// lengths
	{"two lengths", call("Content-Length: "+size+"\r\nContent-Length: 5", hello+hidden), 0, 400},
	{"two lengths in one", call("Content-Length: "+size+", 5", hello+hidden), 0, 400},
	{"a length with a plus", call("Content-Length: +"+size, hello+hidden), 0, 400},
	{"a negative length", call("Content-Length: -1", hello+hidden), 0, 400},
	{"a length in hexadecimal", call("Content-Length: 0x10", hello+hidden), 0, 400},
	{"a length with an underscore", call("Content-Length: 1_0", hello+hidden), 0, 400},
	{"a length beyond 64 bits", call("Content-Length: 99999999999999999999", hello+hidden), 0, 400},
	{"an empty length", call("Content-Length: ", hello+hidden), 0, 400},
	// chunked in disguise
	{"xchunked", call("Transfer-Encoding: xchunked", chunks+hidden), 0, 501},
	{"chunked twice", call("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunks+hidden), 0, 501},
	{"chunked, identity", call("Transfer-Encoding: chunked, identity", chunks+hidden), 0, 501},
	{"identity", call("Transfer-Encoding: identity\r\nContent-Length: "+size, hello+hidden), 0, 501},
	{"gzip, chunked", call("Transfer-Encoding: gzip, chunked", chunks+hidden), 0, 501},
	{"chunked in quotes", call(`Transfer-Encoding: "chunked"`, chunks+hidden), 0, 501},
	{"chunked with a parameter", call("Transfer-Encoding: chunked;a=b", chunks+hidden), 0, 501},
	{"chunked after a vertical tab", call("Transfer-Encoding: \x0bchunked", chunks+hidden), 0, 400},
	{"chunked after a NUL", call("Transfer-Encoding: \x00chunked", chunks+hidden), 0, 400},
	{"chunked in capitals", call("tRANSFER-eNCODING: CHUNKED", chunks+hidden), 1, 200},
	{"chunked after a tab", call("Transfer-Encoding:\tchunked", chunks+hidden), 1, 200},
	{"space before the colon", call("Transfer-Encoding : chunked\r\nContent-Length: "+size, hello+hidden), 0, 400},
	{"space before the colon of the length", call("Content-Length : "+size, hello+hidden), 0, 400},
	{"a name with a space in front", call("X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: "+size, hello), -1, -1},
	{"a folded value", call("Transfer-Encoding:\r\n chunked", chunks+hidden), -1, -1},
	{"a first line that is folded", "POST /v1/chat/completions HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: localhost\r\n\r\n" + chunks + hidden, 0, 400},
	{"an underscore", call("Transfer_Encoding: chunked\r\nContent-Length: "+size, hello), 1, 200},
	{"a name with a NUL", call("Transfer-Encoding\x00: chunked\r\nContent-Length: "+size, hello+hidden), 0, 400},
	{"a line of a return alone", call("X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: "+size, hello+hidden), 0, 400},
	// chunk syntax
	{"a chunk size with a prefix", call("Transfer-Encoding: chunked", "0x10\r\n"+hello+hidden), 0, 400},
	{"a chunk size with a plus", call("Transfer-Encoding: chunked", "+5\r\nhello\r\n0\r\n\r\n"+hidden), 0, 400},
	{"a negative chunk size", call("Transfer-Encoding: chunked", "-5\r\nhello\r\n0\r\n\r\n"+hidden), 0, 400},
	{"a chunk size beyond 64 bits", call("Transfer-Encoding: chunked", "fffffffffffffffff\r\n"+hello+hidden), 0, 400},
	{"a chunk size and bare newlines", call("Transfer-Encoding: chunked", fmt.Sprintf("%x\n%s\n0\n\n", len(hello), hello)+hidden), -1, -1},
	{"a chunk extension", call("Transfer-Encoding: chunked", fmt.Sprintf("%x;a=b\r\n%s\r\n0\r\n\r\n", len(hello), hello)+hidden), 1, 200},
	{"a chunk extension with a newline in it", call("Transfer-Encoding: chunked", fmt.Sprintf("%x;a=\n0\r\n\r\n%s", len(hello), hidden)), -1, -1},
	{"endless chunk extensions", call("Transfer-Encoding: chunked", strings.Repeat("1;"+strings.Repeat("a", 3000)+"\r\n{\r\n", 20)+"0\r\n\r\n"+hidden), 0, 400},
	{"a chunk that is longer than its size", call("Transfer-Encoding: chunked", "2\r\n"+hello+"\r\n0\r\n\r\n"+hidden), 0, 400},
	{"no end of the chunks", call("Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(hello), hello)), 0, 400},
	{"trailers that frame", call("Transfer-Encoding: chunked\r\nTrailer: Content-Length", fmt.Sprintf("%x\r\n%s\r\n0\r\nContent-Length: 5\r\nAuthorization: Bearer x\r\n\r\n", len(hello), hello)+hidden), -1, -1},
	// versions
	{"1.0 with chunks", strings.Replace(call("Connection: keep-alive\r\nTransfer-Encoding: chunked", chunks+hidden), "HTTP/1.1", "HTTP/1.0", 1), 0, 400},
	{"1.0 kept alive", strings.Replace(call("Connection: keep-alive\r\nContent-Length: "+size, hello+hidden), "HTTP/1.1", "HTTP/1.0", 1), 1, 200},
	{"0.9", "GET /v1/chat/completions\r\n\r\n" + hidden, 0, 400},
	{"2.0 in a line", strings.Replace(call("Content-Length: "+size, hello+hidden), "HTTP/1.1", "HTTP/2.0", 1), 0, 505},
	{"1.1 and more", strings.Replace(call("Content-Length: "+size, hello+hidden), "HTTP/1.1", "HTTP/1.1x", 1), 0, 400},
	{"h2c with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, -1},
	{"an upgrade to h2c", call("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: "+size, hello), 1, 200},
	{"an upgrade to websocket", call("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nContent-Length: "+size, hello), 1, 200},
	// request lines and hosts
	{"an absolute form", strings.Replace(call("Content-Length: "+size, hello), "POST /v1", "POST http://evil.example/v1", 1), 0, 400},
	{"an absolute form of ours", strings.Replace(call("Content-Length: "+size, hello), "POST /v1", "POST http://localhost/v1", 1), 0, 400},
	{"CONNECT", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n" + hidden, 0, -1},
	{"a star", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 0, 200},
	{"two hosts", call("Host: b\r\nContent-Length: "+size, hello+hidden), 0, 400},
	{"no host", strings.Replace(call("Content-Length: "+size, hello+hidden), "Host: localhost\r\n", "", 1), 0, 400},
	{"a host with a path", strings.Replace(call("Content-Length: "+size, hello+hidden), "Host: localhost", "Host: localhost/b", 1), 0, 400},
	{"a space in the path", strings.Replace(call("Content-Length: "+size, hello+hidden), "completions", "completions x", 1), 0, 400},
	{"a method with a space", " " + call("Content-Length: "+size, hello+hidden), 0, 400},
	{"a method that is a header", strings.Replace(call("Content-Length: "+size, hello+hidden), "POST", "PO:ST", 1), 0, 400},
	{"a body on a GET", strings.Replace(call("Content-Length: "+strconv.Itoa(len(hidden)), hidden), "POST /v1/chat/completions", "GET /v1/models", 1), 0, 200},
	{"an encoded slash", strings.Replace(call("Content-Length: "+size, hello), "/chat/", "/chat%2f", 1), 0, 400},
	{"dots that climb", strings.Replace(call("Content-Length: "+size, hello), "/v1/chat/completions", "/v1/x/../chat/completions", 1), 0, 400},
	// sizes
	{"a header of 2 MiB", call("X-A: "+strings.Repeat("a", 2<<20)+"\r\nContent-Length: "+size, hello), 0, 431},
	{"a line of 2 MiB", "POST /" + strings.Repeat("a", 2<<20) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, 431},
	{"a header with a return and a newline", call("X-A: b\r\n\r\nPOST /v1/chat/completions HTTP/1.1\r\nContent-Length: "+size, hello), -1, -1},
	{"bare newlines throughout", strings.ReplaceAll(call("Content-Length: "+size, ""), "\r\n", "\n") + hello, 1, 200},
}

var size = strconv.Itoa(len(hello))

// call is a chat call with header lines and a body that may be anything.
func call(header, body string) string {
	return "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + header + "\r\n\r\n" + body
}

func TestSmuggling(t *testing.T) {
	t.Parallel()
	type arrived struct{ line, body string }
	var mu sync.Mutex
	var calls []arrived
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		calls = append(calls, arrived{r.Method + " " + r.RequestURI, string(body)})
		mu.Unlock()
		if len(r.TransferEncoding) > 0 || r.ContentLength != int64(len(body)) || len(r.Header["Content-Length"]) > 1 {
			t.Errorf("a call came framed as %v, %d: %v", r.TransferEncoding, r.ContentLength, r.Header)
		}
		for _, name := range []string{"Upgrade", "Connection", "Te", "Trailer", "Transfer_encoding", "Http2-Settings"} {
			if v := r.Header.Get(name); v != "" && name != "Transfer_encoding" {
				t.Errorf("%s went up: %q", name, v)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	front := bareServer(t, w.gateway)
	for _, c := range smuggling {
		mu.Lock()
		calls = nil
		mu.Unlock()
		statuses := exchangeRaw(t, front, c.raw)
		mu.Lock()
		got := calls
		mu.Unlock()
		if len(got) > 1 || c.up >= 0 && len(got) != c.up {
			t.Errorf("%s: %d calls went up, want %d", c.name, len(got), c.up)
		}
		for _, a := range got {
			if a.line != "POST /v1/chat/completions" || a.body != hello {
				t.Errorf("%s: what went up is not the visible call: %s %s", c.name, a.line, a.body)
			}
		}
		first := 0
		if len(statuses) > 0 {
			first = statuses[0]
		}
		if c.status >= 0 && first != c.status {
			t.Errorf("%s: answered %v, want %d", c.name, statuses, c.status)
		}
	}
	w.settled()
}

// bareServer serves g as the program does, and returns its address.
func bareServer(t testing.TB, g *gateway.Gateway) string {
	t.Helper()
	s := httptest.NewUnstartedServer(g)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ReadHeaderTimeout = 5 * time.Second
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.Listener.Addr().String()
}

// exchangeRaw sends raw on a connection of its own and returns the status of every answer until the server closes.
func exchangeRaw(t *testing.T, address, raw string) (statuses []int) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // a server that waits for ever fails the count, not the suite
	// The last request ends the connection, if it is still open and reads it as one.
	go func() {
		_, _ = io.WriteString(c, raw+"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	}()
	from := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			return statuses
		}
		statuses = append(statuses, resp.StatusCode)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return statuses
		}
	}
}
