// Package gateway is the reverse proxy in front of the providers: parse → acquire → forward → meter → commit.
//
// An agent points the base URL of its SDK here. Each call is leased from the arbiter before it goes up, metered to the token while
// its answer streams through, and settled exactly once, whatever happens. The five hops of a call:
//
//	ServeHTTP: 1 provider.Parse  2 Leaser.Acquire  3 forward  4 provider.Meter (while streaming)  5 Lease.Commit or Release
//
// The gateway decides nothing about limits: it asks a [Leaser], which is the arbiter in this process ([Local]) or one across the
// network ([Remote]). Prompts and answers pass through and are never stored or logged.
//
// One call is an exchange; each lease under it and the request that it allows is a try. Nothing goes to the agent before a try is known to
// be the last, so that a failure can still go to another rung; from then on each byte goes as it comes. A commit is handed over before
// the agent can see the last byte, and nobody waits for the journal after that.
package gateway
