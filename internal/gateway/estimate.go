package gateway

import (
	"math"
	"strings"
	"sync"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// estimator learns from settled calls how wrong the estimates are: the ratio of real to estimated input of each model, and the 95th
// percentile of the output of each class and model. It lives in memory: a fresh one starts from the ratios below. Safe for concurrent
// use; the zero value is not ready, newEstimator makes one.
type estimator struct {
	mu      sync.Mutex
	ratios  map[string]float64
	outputs map[string]*outputs
}

// maxLearned bounds each map: names come from callers. Beyond it new names are not learned.
const maxLearned = 4096

// The ratio moves by a twentieth of the distance with each call, by less with a short one: what surrounds two words of prompt says nothing
// of a long one. It stays within these bounds.
const (
	ratioWeight = 0.05
	fullWeight  = 500 // tokens from which a call counts in full
	minRatio    = 0.5
	maxRatio    = 4
)

func newEstimator() *estimator {
	return &estimator{ratios: map[string]float64{}, outputs: map[string]*outputs{}}
}

// firstRatio is where a model begins: the tokenizer of Claude 4.7 and later yields about 30 % more tokens than bytes/4.
func firstRatio(model string) float64 {
	if !strings.Contains(model, "claude") {
		return 1
	}
	for _, old := range [...]string{"claude-2", "claude-3", "claude-instant", "-4-0", "-4-1", "-4-5", "-4-6", "claude-opus-4-2", "claude-sonnet-4-2"} {
		if strings.Contains(model, old) {
			return 1
		}
	}
	return 1.35
}

// input is an estimate with what was learned about its model.
func (e *estimator) input(model string, estimated int64) int64 {
	e.mu.Lock()
	ratio, ok := e.ratios[model]
	e.mu.Unlock()
	if !ok {
		ratio = firstRatio(model)
	}
	return int64(math.Ceil(float64(estimated) * ratio))
}

// output is the 95th percentile of what the class's calls of the model put out, with the buffer, never above the cap; the cap while
// fewer than least calls are seen.
func (e *estimator) output(class, model string, limit, least int64, buffer float64) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.outputs[class+"\x00"+model]
	if o == nil || o.seen < least {
		return limit
	}
	return min(limit, int64(math.Ceil(float64(o.percentile(0.95))*(1+buffer))))
}

// observe learns from an exact bill.
func (e *estimator) observe(x *exchange, u *provider.Usage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if real := u.Total() - u.Output; x.estimated > 0 && real > 0 && !x.call.Continues {
		ratio, ok := e.ratios[x.asked]
		if !ok {
			ratio = firstRatio(x.asked)
		}
		if ok || len(e.ratios) < maxLearned {
			seen := min(max(float64(real)/float64(x.estimated), minRatio), maxRatio) // one wild bill must not be all that is known
			weight := ratioWeight * min(float64(x.estimated)/fullWeight, 1)
			e.ratios[x.asked] = ratio + weight*(seen-ratio)
		}
	}
	key := x.ask.Class + "\x00" + x.asked
	o := e.outputs[key]
	if o == nil {
		if len(e.outputs) >= maxLearned {
			return
		}
		o = new(outputs)
		e.outputs[key] = o
	}
	o.add(int64(u.Output))
}

// outputs counts outputs in buckets that are an eighth of a doubling wide, and forgets half of them every so often.
type outputs struct {
	seen    int64
	buckets [256]uint32
	since   int
}

const halveAfter = 2000

func bucket(n int64) int {
	return min(int(8*math.Log2(float64(max(n, 1)))), 255)
}

func (o *outputs) add(n int64) {
	o.buckets[bucket(n)]++
	o.seen++
	if o.since++; o.since < halveAfter {
		return
	}
	o.since = 0
	for i := range o.buckets {
		o.buckets[i] /= 2
	}
}

// percentile is the upper end of the bucket that holds it.
func (o *outputs) percentile(p float64) int64 {
	var all, below uint64
	for _, n := range o.buckets {
		all += uint64(n)
	}
	for i, n := range o.buckets {
		if below += uint64(n); float64(below) >= p*float64(all) {
			return int64(math.Ceil(math.Exp2(float64(i+1) / 8)))
		}
	}
	return math.MaxInt32
}
