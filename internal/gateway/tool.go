package gateway

import (
	"bytes"
	"io"
	"net/http"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// maxToolBody is how much of a tool's answer is looked at for hits; a longer one has some.
const maxToolBody = 1 << 20

// zeroHits reports whether a tool found nothing, and leaves the answer whole.
func (t *try) zeroHits(resp *http.Response) bool {
	l := t.x.onLadder
	if l == nil || l.Zero == nil {
		return false
	}
	byStatus := slices.Contains(l.Zero.Status, resp.StatusCode)
	if !byStatus && (l.Zero.JSONPath == "" || resp.StatusCode >= http.StatusMultipleChoices) {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxToolBody+1))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = ends{err}
	}
	resp.Body = replay{io.MultiReader(bytes.NewReader(head), rest), resp.Body}
	if err != nil || len(head) > maxToolBody {
		return false
	}
	return byStatus || noHits(head, l.Zero)
}

func noHits(body []byte, z *config.ZeroHits) bool {
	if !provider.ValidJSON(body) {
		return false
	}
	hits := gjson.GetBytes(body, z.JSONPath)
	switch {
	case !hits.Exists() || hits.Type == gjson.Null:
		return true
	case !z.Empty:
		return false
	case hits.IsArray():
		return len(hits.Array()) == 0
	case hits.IsObject():
		return len(hits.Map()) == 0
	}
	return hits.Type == gjson.String && hits.Str == ""
}

// fallThrough ends a try that found nothing on a free rung: the next one is asked. If there is none, this is the answer.
func (t *try) fallThrough(resp *http.Response) (*http.Response, next) {
	body, _ := io.ReadAll(resp.Body) // in memory already
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	t.settle(Report{Outcome: arbiter.OutcomeOK, HasUsage: true}, false)
	t.answer(resp, false)
	t.x.tried++
	return resp, further
}

// paid reports whether the try's rung is paid for each call: there an empty answer is a result.
func (t *try) paid() bool {
	r, _ := t.x.onLadder.Rung(t.grant.Provider, t.grant.Model)
	return r.Paid
}

// replay is a body whose beginning was read already.
type replay struct {
	io.Reader
	from io.Closer
}

func (r replay) Close() error { return r.from.Close() }
