// Package client is the Go SDK of the Token Budget Arbiter: leases for calls to
// LLM providers, and an Agent that adapts to backpressure.
//
// An agent asks for a [Lease] before each call and commits what the call used:
//
//	c, err := client.Dial("localhost:7481")
//	lease, err := c.Acquire(ctx, client.Request{AgentID: "crawler-7", InputTokens: 900, OutputTokens: 500})
//	usage, err := callProvider(lease.Context(), lease.Provider(), lease.Model())
//	receipt, err := lease.Commit(ctx, usage)
//
// [Agent] does the same with everything a well-behaved agent owes its fleet:
// it listens to backpressure, waits where it is told to, sheds low-priority
// work, and ends each lease exactly once, whatever happens to the call. [Transport]
// does so for an http.Client: a provider's own library then takes leases
// without knowing.
//
// # Who said no
//
// A refusal of the arbiter and a broken network are different things. A
// [DeniedError] or [DeferredError] is a decision with its figures; an
// [UnavailableError] means that nobody decided. [Decided] tells them apart.
//
// # On the wire
//
// Everything travels on one pipelined stream (the Session RPC) with a
// correlation id per call. When that stream breaks, what was not answered is
// sent again under the same request and lease ids, which the arbiter answers
// with the first decision: nothing is granted or counted twice. Where the
// stream cannot be had, the client uses one RPC per call instead.
package client
