package arbiter

import (
	"math/bits"
	"strings"
)

// Ladders (docs/algorithms.md §12): the rungs of a ladder are tried tier by tier. Inside a tier every task ranks the rungs by a hash of its own,
// weighted by what they can do. So a task stays on one rung, where the provider has its prompt cached, and when a rung fails or is full
// its callers scatter over all the others instead of running to the next one as one herd.

// ladderRules are a ladder's rungs in the order of the policy.
type ladderRules struct {
	rungs []ladderRung
}

type ladderRung struct {
	number uint32
	tier   int32
	// seed is the rung's part of the hash, from its name: the numbers of rungs differ from history to history, the places of tasks do not.
	seed uint64
	// weight is the rung's capacity relative to the largest of its tier, 1 to topWeight; 0 where the rung is alone in its tier.
	weight int64
}

const topWeight = 1 << 20

// weightDims are the dimensions that rungs of a tier may be compared by: the first that all of them have a ceiling for.
var weightDims = [...]Dim{DimTPM, DimRPM, DimSlots, DimInputTPM, DimOutputTPM, DimRPD}

// adoptLadders joins the policy's ladders with the rungs; the providers are adopted already.
func (r *rules) adoptLadders() {
	r.ladders = make(map[string]*ladderRules, len(r.policy.Ladders))
	for i := range r.policy.Ladders {
		l := &r.policy.Ladders[i]
		lr := &ladderRules{}
		for t, tier := range l.Tiers {
			first := len(lr.rungs)
			for _, name := range tier {
				provider, model, err := r.policy.find(name)
				if err != nil {
					continue // Validate has refused it
				}
				number := r.providers[provider].rungs[model]
				seed := tombKey(KindProvider, name.Provider+"\x00"+r.rungs[number].model.Name)
				lr.rungs = append(lr.rungs, ladderRung{number: number, tier: int32(t), seed: mix(seed)})
			}
			r.weigh(lr.rungs[first:])
		}
		r.ladders[l.Name] = lr
	}
}

// weigh sets the weights of one tier. Without a dimension in common the rungs weigh the same.
func (r *rules) weigh(tier []ladderRung) {
	if len(tier) < 2 {
		return
	}
	for i := range tier {
		tier[i].weight = topWeight
	}
	for _, dim := range weightDims {
		largest := int64(0)
		for i := range tier {
			c := r.rungs[tier[i].number].ceiling(dim)
			if c == 0 {
				largest = 0
				break
			}
			largest = max(largest, c)
		}
		if largest == 0 {
			continue
		}
		for i := range tier {
			tier[i].weight = max(mulDiv(r.rungs[tier[i].number].ceiling(dim), topWeight, largest), 1)
		}
		return
	}
}

// ceiling is the lowest of a rung's ceilings in one dimension; 0 without one.
func (r *rungRules) ceiling(dim Dim) (least int64) {
	for i := range r.gauges {
		if g := &r.gauges[i]; g.dim == dim && (least == 0 || g.ceiling < least) {
			least = g.ceiling
		}
	}
	return least
}

// rankOf ranks a rung for a task by weighted rendezvous hashing (C. Schindelhauer, G. Schomaker, Weighted Distributed Hash Tables, 2005;
// highest random weight: D. Thaler, C. Ravishankar, 1998): each rung draws u, uniform in (0, 1], from a hash of task and rung, and the
// smallest −log2(u)/weight wins. A rung is then first for a part of the tasks that is its part of the sum of weights, and when it drops out
// its tasks go to the others by their weights while no other task moves. A rung on its ramp weighs as much less as it may do, in powers of
// two, so that each of its tasks comes home once. The result is negated: the higher, the better.
func (l *ladderRung) rankOf(task uint64, ramped PPM) int64 {
	if l.weight == 0 {
		return 0
	}
	weight := l.weight
	for part := Whole; part > ramped && weight > 1; part /= 2 {
		weight /= 2
	}
	return -(minusLog2(mix(task^l.seed)) << 32 / weight)
}

// logBits are the binary places of minusLog2: 64 in front of the point and these behind it stay below 2³¹.
const logBits = 24

// minusLog2 is −log2((x+1)/2⁶⁴) in units of 2⁻²⁴, rounded up, with integers alone so that every machine says the same: the place of the
// highest bit is the whole part, and each squaring of the rest gives one more binary place.
//
// Worked example: x = 2⁶³−1 is u = 1/2, so 1 and 16,777,216 units; x = 3·2⁶²−1 is u = 3/4, so 0.41504 and 6,963,174 units.
func minusLog2(x uint64) int64 {
	if x++; x == 0 {
		return 0 // u = 1
	}
	top := bits.Len64(x) - 1
	log := int64(top)
	m := x << (63 - top) // the rest, 1 to 2, in units of 2⁻⁶³
	for range logBits {
		log <<= 1
		hi, lo := bits.Mul64(m, m) // 1 to 4, in units of 2⁻¹²⁶
		if hi>>63 != 0 {
			log |= 1
			m = hi
		} else {
			m = hi<<1 | lo>>63
		}
	}
	return 64<<logBits - log
}

// mix spreads every bit of x over all of the result (the finaliser of SplitMix64, S. Vigna 2015).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// spot is a request's place on ladders: its task's, or its own where it has none.
func (q *request) spot() uint64 {
	if q.Task != "" {
		return mix(tombKey(KindTask, q.Task))
	}
	low, high := splitID(q.Lease)
	return mix(uint64(low) ^ mix(uint64(high)))
}

// excepts reports whether the request must not be placed on a rung.
func (q *request) excepts(provider, model string) bool {
	for _, e := range q.Except {
		if !strings.HasPrefix(e, provider) {
			continue
		}
		if rest := e[len(provider):]; rest == "" || model != "" && rest[0] == '/' && rest[1:] == model {
			return true
		}
	}
	return false
}

func (s *State) unknownLadder(name string) *Error {
	const shown = 20
	if len(s.rules.policy.Ladders) == 0 {
		return Errorf(CodeInvalid, "unknown_ladder", "ladder %q is not in the policy of pool %s, which has none: add it under ladders, or send model, or neither", name, s.pool)
	}
	var known []string
	for i := range s.rules.policy.Ladders {
		if known = append(known, s.rules.policy.Ladders[i].Name); len(known) == shown && i+1 < len(s.rules.policy.Ladders) {
			known = append(known, "...")
			break
		}
	}
	return Errorf(CodeInvalid, "unknown_ladder", "ladder %q is not in the policy of pool %s: it has %s", name, s.pool, strings.Join(known, ", "))
}
