package rpc

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// settling is a request with commits that ride on it: many commands, one answer. The commands are independent of each other.
type settling struct {
	frame       uint64 // of a session
	pool, model string
	route       *arbiter.Route
	commits     []*tbav1.SettledCommit
	left        int // answers that have not come
	request     engine.Reply
}

// newSettling returns a group and the commits' ops, with the place of each. A commit that is malformed is answered in the group already.
func (s *Server) newSettling(m *tbav1.LeaseRequest, c *identity.Caller) (g *settling, ops []engine.Op, places []int) {
	g = &settling{model: m.GetModel(), route: routeOf(m), commits: make([]*tbav1.SettledCommit, len(m.GetSettle()))}
	ops, places = make([]engine.Op, 0, len(g.commits)+1), make([]int, 0, len(g.commits)+1)
	for i, commit := range m.GetSettle() {
		g.commits[i] = &tbav1.SettledCommit{LeaseId: commit.GetLeaseId()}
		op, err := s.commitOp(commit, c, new(arbiter.Commit))
		if err != nil {
			g.commits[i].Outcome = &tbav1.SettledCommit_Error{Error: toFrame(err)}
			continue
		}
		ops, places = append(ops, op), append(places, i)
	}
	return g, ops, places
}

// take keeps the reply to the command at a place and reports whether it was the last one that was missing.
func (g *settling) take(s *Server, place int, r *engine.Reply) (complete bool) {
	switch {
	case place == len(g.commits):
		g.request = *r
	case r.Err != nil:
		g.commits[place].Outcome = &tbav1.SettledCommit_Error{Error: errorAnswer(s.refused(r.Err))}
	default:
		g.commits[place].Outcome = &tbav1.SettledCommit_Commit{Commit: commitResponse(new(tbav1.CommitResponse), &r.Outcome)}
	}
	g.left--
	return g.left == 0
}

// response is the one answer, once all are there. Only when the request gets no verdict the whole call fails: then the commits are counted
// all the same, and repeating them is harmless.
func (g *settling) response(s *Server) (*tbav1.LeaseResponse, error) {
	if err := g.request.Err; err != nil {
		return nil, s.refused(err)
	}
	out := s.leaseResponse(new(tbav1.LeaseResponse), &g.request.Outcome, g.pool, g.model, g.route)
	out.Settled = g.commits
	return out, nil
}

// answer is response as a frame.
func (g *settling) answer(s *Server) (id uint64, field protowire.Number, m proto.Message) {
	out, err := g.response(s)
	if err != nil {
		return g.frame, fieldError, errorAnswer(err)
	}
	return g.frame, fieldRequest, out
}

// queueSettling puts the commits that ride on a request and the request itself among the ops that go to the engine: each is counted as open
// and CANCEL reaches the request as any other.
func (x *session) queueSettling(call sessionCall, op engine.Op) *arbiter.Error {
	g, ops, places := x.newSettling(&x.request, x.caller)
	g.frame, g.pool, g.left = call.frame, op.Pool, len(ops)+1
	call.group, call.place = g, len(g.commits)
	tag, err := x.enter(call, op.MaxWait > 0)
	if err != nil {
		return err
	}
	for i := range ops {
		commit, _ := ops[i].Command.(*arbiter.Commit)                                                                                                 // newSettling makes no other
		t, _ := x.enter(sessionCall{frame: call.frame, kind: fieldCommit, pool: ops[i].Pool, lease: commit.Lease, group: g, place: places[i]}, false) // only what waits can be refused
		x.tags, x.ops = append(x.tags, t), append(x.ops, ops[i])
	}
	x.tags, x.ops = append(x.tags, tag), append(x.ops, op)
	return nil
}

// settled takes a reply of a group and reports whether the group can be answered. The reader and the sender both do it.
func (x *session) settled(c *sessionCall, r *engine.Reply) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return c.group.take(x.Server, c.place, r)
}
