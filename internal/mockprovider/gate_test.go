package mockprovider

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive is what the limits mean, written without any cleverness: a list of all charges, added up afresh each time.
type naive struct {
	length   time.Duration
	charges  []entry
	bucketed []entry
}

func (m *naive) sum(now time.Duration) (n int64) {
	for _, e := range m.charges {
		if e.at > now-m.length && e.at <= now {
			n += e.n
		}
	}
	return n
}

// level plays a token bucket in units of 1/each, so that a refill of per units in each is exact.
func (m *naive) level(now time.Duration, b *bucket) int64 {
	level, last := b.size*int64(b.each), time.Duration(0)
	refill := func(to time.Duration) {
		level = min(level+int64(to-last)*b.per, b.size*int64(b.each))
		last = to
	}
	for _, e := range m.bucketed {
		refill(e.at)
		level -= e.n * int64(b.each)
	}
	refill(now)
	return level
}

func TestWindowAgainstNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.IntRange(1, 50).Draw(t, "length"))
		w := window{length: length, ceiling: rapid.Int64Range(1, 30).Draw(t, "ceiling")}
		m := naive{length: length}
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 20).Draw(t, "gap"))
			n := rapid.Int64Range(0, w.ceiling).Draw(t, "n")
			wait := w.wait(now, n)
			if fits := m.sum(now)+n <= w.ceiling; fits != (wait == 0) {
				t.Fatalf("at %d: %d of %d used, %d asked, told to wait %d", now, m.sum(now), w.ceiling, n, wait)
			}
			if wait > 0 && (m.sum(now+wait)+n > w.ceiling || m.sum(now+wait-1)+n <= w.ceiling) {
				t.Fatalf("at %d: wait %d is not the earliest moment", now, wait)
			}
			if got := w.remaining(now); got != w.ceiling-m.sum(now) {
				t.Fatalf("at %d: %d remaining, want %d", now, got, w.ceiling-m.sum(now))
			}
			if full := w.full(now); m.sum(now+full) != 0 || full > 0 && m.sum(now+full-1) == 0 {
				t.Fatalf("at %d: full in %d is wrong", now, full)
			}
			if wait == 0 {
				w.add(now, n)
				m.charges = append(m.charges, entry{now, n})
			}
		}
	})
}

func TestBucketAgainstNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Lengths that the rate divides make every flow a whole number, so that the two must agree exactly.
		per := rapid.Int64Range(1, 20).Draw(t, "per")
		b := bucket{size: rapid.Int64Range(1, 30).Draw(t, "size"), each: time.Duration(per * rapid.Int64Range(1, 10).Draw(t, "unit")), per: per}
		var m naive
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 30).Draw(t, "gap"))
			n := rapid.Int64Range(0, b.size).Draw(t, "n")
			wait := b.wait(now, n)
			need := n * int64(b.each)
			if fits := m.level(now, &b) >= need; fits != (wait == 0) {
				t.Fatalf("at %d: level %d, need %d, told to wait %d", now, m.level(now, &b), need, wait)
			}
			if wait > 0 && (m.level(now+wait, &b) < need || m.level(now+wait-1, &b) >= need) {
				t.Fatalf("at %d: wait %d is not the earliest moment", now, wait)
			}
			if wait == 0 {
				b.take(now, n)
				m.bucketed = append(m.bucketed, entry{now, n})
			}
		}
	})
}

func TestBucketExample(t *testing.T) {
	t.Parallel()
	b := bucket{size: 10, each: time.Minute, per: 60}
	b.take(0, 10)
	for _, c := range []struct {
		at   time.Duration
		n    int64
		wait time.Duration
	}{{0, 1, time.Second}, {3 * time.Second, 3, 0}, {3 * time.Second, 4, time.Second}, {10 * time.Second, 10, 0}, {0, 99, 10 * time.Second}} {
		if got := b.wait(c.at, c.n); got != c.wait {
			t.Errorf("%d at %v: wait %v, want %v", c.n, c.at, got, c.wait)
		}
	}
}

// Whatever arrives, no window of what the gate let in is above a ceiling, slots hold, and what it refuses did not fit.
func TestGateNeverExceedsAndNeverRefusesInVain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := Upstream{
			RPM:            rapid.Int64Range(0, 10).Draw(t, "rpm"),
			TPM:            rapid.Int64Range(0, 50).Draw(t, "tpm"),
			InputTPM:       rapid.Int64Range(0, 30).Draw(t, "input"),
			MaxConcurrency: rapid.Int64Range(0, 4).Draw(t, "slots"),
			CountRejected:  rapid.Bool().Draw(t, "count_rejected"),
		}
		const length = time.Duration(60)
		g := newGate(&u, length)
		models := map[axis]*naive{requestAxis: {length: length}, tokenAxis: {length: length}, inputAxis: {length: length}}
		ceilings := map[axis]int64{requestAxis: u.RPM, tokenAxis: u.TPM, inputAxis: u.InputTPM}
		running, now := int64(0), time.Duration(0)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 12).Draw(t, "gap"))
			if running > 0 && rapid.Bool().Draw(t, "leave") {
				g.leave()
				running--
			}
			c := charge{rapid.Int64Range(0, 20).Draw(t, "prompt"), rapid.Int64Range(0, 20).Draw(t, "cap")}
			asks := map[axis]int64{requestAxis: 1, tokenAxis: c.tokens(), inputAxis: c.prompt}
			fits, never := u.MaxConcurrency == 0 || running < u.MaxConcurrency, false
			for kind, ceiling := range ceilings {
				if ceiling > 0 && models[kind].sum(now)+asks[kind] > ceiling {
					fits = false
				}
				never = never || ceiling > 0 && asks[kind] > ceiling
			}
			r := g.enter(now, c)
			if (r.axis == noAxis) != fits || r.never != never {
				t.Fatalf("at %d %+v: %+v; fits %v, never %v", now, c, r, fits, never)
			}
			if fits {
				running++
			}
			if fits || u.CountRejected && !never {
				for kind, m := range models {
					m.charges = append(m.charges, entry{now, asks[kind]})
				}
			}
		}
	})
}

// The watch counts exactly the windows that a look at the whole log finds over a ceiling.
func TestWatchAgainstTheWholeLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := Upstream{RPM: rapid.Int64Range(0, 5).Draw(t, "rpm"), TPM: rapid.Int64Range(0, 60).Draw(t, "tpm")}
		const length = time.Duration(60)
		w := newWatch(&u, length)
		requests, tokens := naive{length: length}, naive{length: length}
		now := time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 40).Draw(t, "gap"))
			c := charge{rapid.Int64Range(0, 20).Draw(t, "prompt"), rapid.Int64Range(0, 20).Draw(t, "cap")}
			requests.charges = append(requests.charges, entry{now, 1})
			tokens.charges = append(tokens.charges, entry{now, c.tokens()})
			var want int64
			if u.RPM > 0 && requests.sum(now) > u.RPM {
				want++
			}
			if u.TPM > 0 && tokens.sum(now) > u.TPM {
				want++
			}
			if got := w.arrive(now, c); got != want {
				t.Fatalf("at %d: %d broken ceilings, want %d", now, got, want)
			}
		}
	})
}
