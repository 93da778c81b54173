package mockprovider

import (
	"net/http"
	"net/url"

	"github.com/tidwall/gjson"
)

// toolAPI is a search: whatever the path, it finds something.
var toolAPI = api{
	speaks: &toolWords,
	route:  func(string) (*endpoint, string) { return &search, "search" },
}

var toolWords = speaker{
	limits: func(http.Header, snapshot) {},
	throttled: func(h http.Header, _, _ string, r refusal) any {
		if r.wait > 0 {
			h.Set("Retry-After", seconds(r.wait))
		}
		return object{{"error", "too many requests"}}
	},
	fault: func(_ string, f fault) (int, any) { return f.status, object{{"error", f.message}} },
	refuse: func(_, _, kind string) (int, any) {
		switch kind {
		case FaultRamp:
			return 429, object{{"error", "too many requests"}}
		case FaultExhausted:
			return 402, object{{"error", "no searches left this month"}}
		case FaultTooLarge:
			return 413, object{{"error", "the query is too long"}}
		}
		return 503, object{{"error", "overloaded"}}
	},
	streamError: func(t *turn) { t.event("", object{{"error", "overloaded"}}) },
}

// search finds three results for any words of q, or none when a fault says so or when the words are "nothing".
var search = endpoint{
	name: "search", speaks: &toolWords,
	read: func(gjson.Result, *query) *fault { return nil },
	plain: func(t *turn) any {
		values, _ := url.ParseQuery(t.q.terms)
		q := values.Get("q")
		results := list{}
		if !t.fault.is(FaultZeroHits) && q != "nothing" {
			for _, n := range [...]string{"1", "2", "3"} {
				results = append(results, object{{"title", "Result " + n + " for " + q}, {"url", "https://example.com/" + n}, {"snippet", words(12)}})
			}
		}
		return object{{"query", q}, {"results", results}}
	},
}
