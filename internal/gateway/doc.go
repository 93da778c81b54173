// Package gateway is the reverse proxy in front of the providers: parse → acquire → forward → meter → commit.
//
// An agent points the base URL of its SDK here. Each call is leased from the arbiter before it goes up, metered to the token while
// its answer streams through, and settled exactly once, whatever happens. The five hops of a call:
//
//	ServeHTTP: 1 provider.Parse  2 Leaser.Acquire  3 forward  4 provider.Meter (while streaming)  5 Lease.Commit or Release
//
// The gateway decides nothing about limits: it asks a [Leaser], which is the arbiter in this process ([Local]) or one across the
// network ([Remote]). Prompts and answers pass through and are never stored or logged.
package gateway
