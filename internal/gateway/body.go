package gateway

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// defaultMaxBody is the longest request body that is read when the file does not say, bytes.
const defaultMaxBody = 8 << 20

// refuseRequest is a refusal of a request that no retry makes right.
func refuseRequest(status int, kind provider.Kind, reason, message string) *refusal {
	return &refusal{status: status, kind: kind, message: message, retry: &no, detail: &detail{Reason: reason}}
}

// readBody reads and decodes the body of r, at most limit bytes of it as sent and as decoded; limit <= 0 is defaultMaxBody. d is the dialect
// of the path: its provider's word for content encodings holds. Nothing is read of a body that says it is too long or is in an encoding
// that is not read; of one that turns out too long, no more than limit. How long it may take is the server's ReadTimeout.
// The bytes are the caller's. A body of 0 bytes is not judged here.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, d *provider.Dialect) ([]byte, *refusal) {
	if limit <= 0 {
		limit = defaultMaxBody
	}
	coding, ok := contentCoding(r.Header, codings(d))
	if !ok {
		w.Header().Set("Accept-Encoding", strings.Join(append([]string{"identity"}, codings(d)...), ", ")) // RFC 9110, 12.5.3
		return nil, refuseRequest(http.StatusUnsupportedMediaType, provider.Unsupported, "content_encoding",
			"the request body is compressed in a way that is not read here; send it without Content-Encoding")
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, refuseTooLong(limit)
	}
	from := http.MaxBytesReader(w, r.Body, limit) // has the server close the connection rather than read the rest
	var body []byte
	var err error
	if coding == "" {
		body, err = readAll(from, r.ContentLength, limit)
	} else {
		body, err = gunzipAll(from, limit)
	}
	var over *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, errTooLong), errors.As(err, &over):
		return nil, refuseTooLong(limit)
	case coding != "":
		return nil, refuseRequest(http.StatusBadRequest, provider.BadRequest, "body", "the request body is not complete, or is not "+coding)
	default:
		return nil, refuseRequest(http.StatusBadRequest, provider.BadRequest, "body", "the request body did not arrive whole")
	}
}

// lastOnConnection closes the connection after a request whose end another server in front of us may have seen elsewhere, so that what
// this one takes for the next request never is one (RFC 9112, 6.1). It is told by what is left of it: chunked, from which net/http removes
// a Content-Length silently, HTTP/1.0, where it ignores Transfer-Encoding silently, and CONNECT, after which everything may be the tunnel's.
// No SDK sends any of them but to stream a file.
func lastOnConnection(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0 || r.Method == http.MethodConnect) {
		w.Header().Set("Connection", "close")
	}
}

func refuseTooLong(limit int64) *refusal {
	return refuseRequest(http.StatusRequestEntityTooLarge, provider.TooLong, "body_too_long",
		fmt.Sprintf("the request body is longer than %d bytes, the limit of this gateway (gateway.max_body)", limit))
}

// contentCoding is the one coding of a body, "" for none. ok is false for one that allowed does not hold, and for several on top of each other.
func contentCoding(h http.Header, allowed []string) (coding string, ok bool) {
	for _, line := range h["Content-Encoding"] {
		for name := range strings.SplitSeq(line, ",") {
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "", "identity":
				continue
			case "x-gzip": // RFC 9110, 8.4.1.3
				name = "gzip"
			}
			if coding != "" || !slices.Contains(allowed, name) {
				return "", false
			}
			coding = name
		}
	}
	return coding, true
}

// firstRead is the most that is set aside for a body on the word of its Content-Length alone. A client that promises 8 MiB and
// sends nothing holds this much; the rest grows with what has come.
const firstRead = 64 << 10

// errTooLong is the cause when a body is longer than its limit.
var errTooLong = errors.New("body too long")

// codings are the content encodings in which a dialect's provider takes request bodies. They are decoded here, because what is
// inside has to be read, and go up plain.
func codings(d *provider.Dialect) []string {
	if d != nil && d.Name() == provider.Anthropic {
		return []string{"gzip"}
	}
	return nil
}

// readAll reads r up to limit bytes. declared is the announced length, -1 for none: a hint, not believed.
func readAll(r io.Reader, declared, limit int64) ([]byte, error) {
	if declared > limit {
		return nil, errTooLong
	}
	if declared < 0 {
		declared = 512
	}
	// One byte more than announced, so that the end is seen without growing.
	body := make([]byte, 0, min(declared, firstRead)+1)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return nil, errTooLong
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, err
		}
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(2*int64(cap(body)), limit+1))
			copy(grown, body)
			body = grown
		}
	}
}

// gunzippers are kept because each holds a window of 32 KiB.
var gunzippers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// gunzipAll decodes while it reads, so that neither form is held beyond limit.
func gunzipAll(r io.Reader, limit int64) ([]byte, error) {
	z := gunzippers.Get().(*gzip.Reader)
	defer func() {
		_ = z.Reset(http.NoBody) // lets go of r
		gunzippers.Put(z)
	}()
	if err := z.Reset(r); err != nil {
		return nil, err
	}
	return readAll(z, -1, limit)
}

// maxDecoded bounds what is decoded of one answer.
const maxDecoded = 64 << 20

var errDecoded = errors.New("the decoded answer is longer than 64 MiB")

// decodeResponse makes an answer plain that came compressed although identity was asked for: whoever reads it expects to find
// usage in it. gzip and deflate are decoded while they pass, so a bomb costs time and never memory; the headers are written
// anew. The error names a coding that cannot be read; the answer is then untouched.
func decodeResponse(resp *http.Response) error {
	values := resp.Header["Content-Encoding"]
	if len(values) == 0 {
		return nil
	}
	coding := strings.ToLower(strings.TrimSpace(strings.Join(values, ",")))
	switch coding {
	case "", "identity", "none", "utf-8": // the last two are mistakes that are made
	case "gzip", "x-gzip", "deflate":
		if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 {
			break
		}
		resp.Body = &decodedBody{from: resp.Body, deflate: coding == "deflate", left: maxDecoded}
		resp.ContentLength = -1
		resp.Uncompressed = true
		resp.Header.Del("Content-Length")
		resp.Header.Del("Etag") // of the other form
		resp.Header.Del("Content-Md5")
		resp.Header.Del("Content-Digest")
	default:
		return fmt.Errorf("the provider answered in a content encoding that was not asked for (%.40q)", coding)
	}
	resp.Header.Del("Content-Encoding")
	return nil
}

// decodedBody decodes an answer. The header of the coding is read with the first Read, not before: a stream may open long
// before its first event.
type decodedBody struct {
	from    io.ReadCloser
	deflate bool
	left    int64

	plain io.Reader
	err   error
}

func (b *decodedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.plain == nil {
		if b.plain, b.err = newDecoder(b.from, b.deflate); b.err != nil {
			return 0, b.err
		}
	}
	if b.left <= 0 {
		// Is there more, or was this the end?
		if n, err := b.plain.Read(make([]byte, 1)); n == 0 && err != nil {
			b.err = err
		} else {
			b.err = errDecoded
		}
		return 0, b.err
	}
	n, err := b.plain.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.err = err
	return n, err
}

func (b *decodedBody) Close() error { return b.from.Close() }

func newDecoder(r io.Reader, deflate bool) (io.Reader, error) {
	if deflate {
		return zlib.NewReader(r)
	}
	return gzip.NewReader(r)
}
