package engine

import "github.com/token-budget-arbiter/tba/arbiter"

// unavailable is the arbiter that cannot know: the caller may ask again after
// the hint, under the same ids.
func unavailable(reason string, retry int64, format string, args ...any) *arbiter.Error {
	err := arbiter.Errorf(arbiter.CodeUnavailable, reason, format, args...)
	err.RetryAfter = retry
	return err
}

func errInboxFull(pool string) *arbiter.Error {
	return unavailable("inbox_full", 100*arbiter.Millisecond, "pool %s has more commands in hand than it can decide: ask again in 100 ms", pool)
}

func errJournalSilent(pool string) *arbiter.Error {
	return unavailable("journal", 500*arbiter.Millisecond, "the journal of pool %s does not answer: ask again under the same ids", pool)
}

func errJournalFull(pool string) *arbiter.Error {
	return unavailable("journal_full", 5*arbiter.Second, "the journal of pool %s is full: only commits and releases are recorded until there is room", pool)
}

func errDraining(pool string) *arbiter.Error {
	return unavailable("draining", arbiter.Second, "pool %s is going down here: ask again in 1 s", pool)
}

func errLate(pool string) *arbiter.Error {
	return unavailable("late", 100*arbiter.Millisecond, "pool %s decided too slowly to hand out a grant in time: ask again", pool)
}

func errClosed(pool string) *arbiter.Error {
	return unavailable("draining", arbiter.Second, "pool %s was closed here", pool)
}

func errStopped(pool, why string) *arbiter.Error {
	return unavailable("stopped", 10*arbiter.Second, "pool %s grants nothing until an operator has looked: %s", pool, why)
}

func errOtherWriter(pool, writer string) *arbiter.Error {
	return unavailable("other_writer", 300*arbiter.Millisecond, "pool %s is held by writer %q", pool, writer)
}

func errBroken(pool string, why error) *arbiter.Error {
	return unavailable("journal", 5*arbiter.Second, "the journal of pool %s cannot be written: %v", pool, why)
}
