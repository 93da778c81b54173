// Package arbiter is the decision: state, commands, facts, Decide, Apply and policy values, all pure.
//
// A State is everything one pool of budgets knows. A Command asks something of it; Decide answers and names the facts that make the
// answer true; Apply makes a fact true by arithmetic. The caller writes the facts to a journal in between, so that any replica that
// reads them holds the same State, byte for byte:
//
//	s.Begin()                          // what follows can be taken back
//	s.Advance(t)                       // what follows from time alone: leases end, windows rotate
//	err := s.Decide(cmd, &d)        // reads only
//	for i := range d.Facts {
//		s.Apply(&d.Facts[i])       // later commands of the batch see earlier ones
//	}
//	...                                // append one entry for the batch
//	s.Confirm()                        // or s.Rollback()
//
// Nothing here reads a clock, draws a number, waits, logs or depends on the order of a map; time and ids are arguments. After warm-up
// a lease cycle allocates nothing.
//
// # Where a rule lives
//
//	decide.go  a request: repeats, rows, candidate rungs, score      place.go   every check of a grant, and the grant
//	settle.go  commit, release, extend, signal, revoke               apply.go   what each fact changes
//	lease.go   the lease table and what ends by itself               window.go  exact windows, pacing, slots, days
//	rung.go    health, breaker, learned speed                        share.go   what a class may use
//	rules.go   a policy joined with the state's rows                 period.go  periods, days, policies, housekeeping
//	budget.go  rows, accounts, tombstones                            undo.go    taking a batch back
//
// # The window
//
// A sliding window of 60 s is kept in 100 ms buckets that are let go only Guard after they left it, so that it bounds the calls as
// they arrive at the provider, not as they were granted. The published fixed-bucket window (60 buckets of a second) admits twice the
// ceiling across a boundary; 61 such buckets do not, and use 98.4 % of it. This one uses at least 99.4 % with the default guard of
// 250 ms, and gives up one bucket and the guard at most. Beside it GCRA (ITU-T I.371) paces what the window would let go at once.
//
// # Memory
//
// A live lease takes about 220 bytes: 192 in the table, 8 to 16 in the index, 16 on the wheel of ends. Rows, rungs and meters are
// few. Tables grow by chunks and never move, so that the undo log is a list of addresses and old words.
package arbiter
