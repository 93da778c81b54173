package provider

import (
	"net/http"
	"time"
)

// Kind is why a call is refused by us, not by its provider. The dialect has its own word for each.
type Kind uint8

// The kinds. RateLimited is the zero value.
const (
	RateLimited     Kind = iota // waiting helps
	QuotaExhausted              // a budget is used up until it is reset
	TooLarge                    // larger than any limit allows: the request must shrink
	Denied                      // this credential may not
	Unauthenticated             // no credential, or one that is not known
	Unavailable                 // nobody can serve it now
	NotFound                    // no such path, or one that cannot be metered
	BadRequest                  // the request is wrong
	Unsupported                 // an encoding or media type that is not read: 415
	TooLong                     // too many bytes: 413
)

// Problem is our own refusal. ErrorBody and StreamError put it into the words of a dialect.
type Problem struct {
	Status     int    // HTTP status it goes out with
	Kind       Kind   //
	Message    string // one sentence for the agent's developer
	RequestID  string // "" when there is none
	RetryAfter time.Duration
	Detail     []byte // JSON object for the member "tba"; nil: no such member
}

// ErrorBody is the whole body of a refusal, JSON in the dialect's own shape.
func (d *Dialect) ErrorBody(p Problem) []byte { return nil }

// StreamError is how a stream that has begun ends with an error in this dialect.
func (d *Dialect) StreamError(p Problem) []byte { return nil }

// SetLimits writes limits in the header format of the dialect. Where h has the same limit already, the tighter of the two
// stays. now places instants where h has no Date.
func (d *Dialect) SetLimits(h http.Header, l []Limit, now time.Time) {}
