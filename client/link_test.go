package client

import (
	"context"
	"testing"
	"time"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// endsWithAnswer is a context that ends at the moment at which an answer comes.
type endsWithAnswer struct {
	context.Context
	answer func()
}

func (c endsWithAnswer) Done() <-chan struct{} {
	if c.answer != nil {
		c.answer()
	}
	return c.Context.Done()
}

func TestAnswerThatIsReadyWithTheEndOfTheCaller(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	granted := &answer{Answer: &tbav1.SessionResponse_Frame_Lease{Lease: &tbav1.LeaseResponse{
		Status: tbav1.LeaseStatus_GRANTED, LeaseId: "L",
	}}}
	denied := &answer{Answer: &tbav1.SessionResponse_Frame_Lease{Lease: &tbav1.LeaseResponse{Status: tbav1.LeaseStatus_DENIED}}}
	request := requestCall(&tbav1.LeaseRequest{AgentId: "a"})
	for _, tt := range []struct {
		name     string
		comes    *answer
		call     *call
		patience time.Duration // 0: the timer is ready too, and ctx goes on
		err      bool          // may end in an error; then the grant was given back
	}{
		{"grant", granted, request, time.Hour, true},
		{"denial", denied, request, time.Hour, false},
		{"commit", &answer{}, commitCall(&tbav1.LeaseCommit{LeaseId: "L"}), time.Hour, false},
		{"grant and timer", granted, request, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for range 64 { // select throws dice
				c := &Client{leases: map[string]*Lease{}}
				s := newSession(c, nil)
				l := newLink(s, nil, func() {})
				l.heard = time.Now()
				s.cur = l
				ctx := endsWithAnswer{Context: ended, answer: func() {
					a := &answer{Id: l.next, Answer: tt.comes.GetAnswer()}
					l.deliver(a)
				}}
				if tt.patience == 0 {
					ctx.Context = t.Context()
				}
				a, err := s.do(ctx, tt.call, 0, tt.patience)
				switch {
				case err == nil && a == nil, err != nil && !tt.err:
					t.Fatalf("got %v, %v", a, err)
				case err != nil:
					if last := l.queue[len(l.queue)-1]; last.GetRelease().GetLeaseId() != "L" || last.GetRelease().GetOutcome() != tbav1.LeaseCommit_NOT_SENT {
						t.Fatalf("the grant is lost: last frame is %v", last)
					}
				}
			}
		})
	}
}
