package gateway

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

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
