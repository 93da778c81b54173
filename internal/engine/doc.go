// Package engine is pools at work: the writer loop, waiting queue, forwarding, followers, snapshots, recovery.
//
// Each open pool has one writer goroutine that decides by package arbiter and
// appends to the pool's journal, and one follower goroutine that applies the
// confirmed entries to a second state. Decisions are made on the writer's
// state, everything that is shown is read from the follower's, so that a slow
// reader never holds a decision and nothing unconfirmed is ever seen.
package engine
