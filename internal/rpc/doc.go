// Package rpc holds wire messages ↔ commands: gRPC, JSON over HTTP, SSE.
//
// The gRPC port speaks native gRPC under the published bare service name and under tba.v1; the HTTP port speaks the same unary
// calls in the Connect protocol, so that curl works, and backpressure as Server-Sent Events. Both are thin: they find out who
// asks, translate, hand commands to the engine and translate the answer. No rule about budgets is made here.
package rpc
