package rpc

import (
	"strings"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
)

// Bounds of what a message may say. Each is checked before any work.
const (
	maxID      = 128                  // bytes of an id
	maxText    = 256                  // bytes of a text for people
	maxToken   = engine.MaxTokenBytes // bytes of a lease token or ticket
	maxSettle  = 64                   // commits that ride on one request
	maxExcept  = 64                   // rungs that one request excepts
	maxHeaders = 64                   // limit headers of a provider signal
	maxWaitMS  = 3_600_000            // 1 h: longest blocking wait
	maxDayMS   = 86_400_000           // 24 h: longest call
	maxHoldMS  = 31_622_400_000       // 366 days: longest wait a provider is believed, and longest deadline
	maxMessage = 256 << 10            // bytes of one message
)

// idOK reports whether s is an id: at most 128 bytes of A-Z a-z 0-9 . _ : - and, with model, also / @ + which model ids contain.
func idOK(s string, model bool) bool {
	if len(s) > maxID {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == ':', c == '-':
		case model && (c == '/' || c == '@' || c == '+'):
		default:
			return false
		}
	}
	return true
}

func checkID(field, s string) *arbiter.Error {
	if idOK(s, false) {
		return nil
	}
	return badID(field, s, "A-Z a-z 0-9 . _ : -")
}

func checkModel(field, s string) *arbiter.Error {
	if idOK(s, true) {
		return nil
	}
	return badID(field, s, "A-Z a-z 0-9 . _ : - / @ +")
}

// checkExcept wants "provider" or "provider/model", each part as it is named elsewhere.
func checkExcept(list []string) *arbiter.Error {
	if len(list) > maxExcept {
		return invalid("except", "too_long", "%d rungs, at most %d are allowed: except whole providers", len(list), maxExcept)
	}
	for _, e := range list {
		provider, model, _ := strings.Cut(e, "/")
		if provider == "" {
			return invalid("except", "bad_rung", "%q names no provider: send \"provider\" or \"provider/model\"", cut(e))
		}
		if err := firstError(checkID("except", provider), checkModel("except", model)); err != nil {
			return err
		}
	}
	return nil
}

func badID(field, s, allowed string) *arbiter.Error {
	if len(s) > maxID {
		return invalid(field, "bad_id", "%d bytes, at most %d are allowed: shorten it", len(s), maxID)
	}
	return invalid(field, "bad_id", "%q has characters outside %s: replace them", s, allowed)
}

// checkAmount wants 0 to 2^53-1, the largest integer that JSON and Lua numbers carry exactly.
func checkAmount(field string, n int64) *arbiter.Error {
	if n >= 0 && n <= arbiter.MaxAmount {
		return nil
	}
	return invalid(field, "bad_amount", "%d is outside 0..%d: send a plain count", n, int64(arbiter.MaxAmount))
}

func checkDuration(field string, n, most int64) *arbiter.Error {
	if n >= 0 && n <= most {
		return nil
	}
	return invalid(field, "bad_duration", "%d ms is outside 0..%d: send milliseconds within it", n, most)
}

func checkBytes(field string, n, most int) *arbiter.Error {
	if n <= most {
		return nil
	}
	return invalid(field, "too_long", "%d bytes, at most %d are allowed", n, most)
}

// cleanText drops control characters from a text that people and logs will read.
func cleanText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// firstError returns the first fault. The checks have run already: they are cheap.
func firstError(faults ...*arbiter.Error) *arbiter.Error {
	for _, f := range faults {
		if f != nil {
			return f
		}
	}
	return nil
}

const nanosPerMilli = arbiter.Millisecond

// ceilMillis rounds a duration in ns up to milliseconds: a caller that waits it is never early.
func ceilMillis(ns int64) int64 {
	if ns <= 0 {
		return 0
	}
	return (ns-1)/nanosPerMilli + 1
}

// floorMillis rounds a lifetime in ns down to milliseconds: a holder that trusts it is never late.
func floorMillis(ns int64) int64 { return max(ns, 0) / nanosPerMilli }
