package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func sent(agent, body string) *exchange {
	return &exchange{ask: &Ask{Pool: "default", Agent: agent}, route: route{path: "/v1/chat/completions"}, body: []byte(body)}
}

// A place is for the same call of the same agent, and for one return.
func TestAPlaceIsTheCallsOwn(t *testing.T) {
	t.Parallel()
	s := newSeniority()
	s.remember(sent("a", "one"), nil)
	if got := s.recall(sent("a", "one")); got != nil {
		t.Errorf("a refusal without a ticket is remembered: %q", got)
	}
	s.remember(sent("a", "one"), []byte("ticket"))
	other := sent("a", "one")
	other.path = "/v1/responses"
	pool, class, task := sent("a", "one"), sent("a", "one"), sent("a", "one")
	pool.ask.Pool, class.ask.Class, task.ask.Task = "other", "writer", "t1"
	for _, x := range []*exchange{sent("b", "one"), sent("", "aone"), sent("a", "two"), sent("a", ""), other, pool, class, task} {
		if got := s.recall(x); got != nil {
			t.Errorf("%+v %s has the place of another: %q", x.ask, x.body, got)
		}
	}
	if got := s.recall(sent("a", "one")); string(got) != "ticket" {
		t.Errorf("the place is lost: %q", got)
	}
	if got := s.recall(sent("a", "one")); got != nil {
		t.Errorf("a place is given twice: %q", got)
	}
}

// A place is kept for as long as a refusal tells its caller to stay away, and a little longer; calls in between do not shorten that.
func TestAPlaceExpires(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		before := rapid.Int64Range(0, int64(3*time.Minute)).Draw(rt, "before")
		steps := rapid.SliceOfN(rapid.Int64Range(1, int64(40*time.Second)), 1, 20).Draw(rt, "others come after")
		synctest.Test(t, func(*testing.T) {
			s := newSeniority()
			s.remember(sent("a", "first"), []byte("x"))
			time.Sleep(time.Duration(before))
			s.remember(sent("a", "mine"), []byte("mine"))
			var since time.Duration
			for i, step := range steps {
				time.Sleep(time.Duration(step))
				since += time.Duration(step)
				s.remember(sent("a", fmt.Sprint(i)), []byte("x"))
			}
			switch got := string(s.recall(sent("a", "mine"))); {
			case since <= seniorityFor && got != "mine":
				rt.Fatalf("after %v the place is lost", since)
			case since > seniorityFor && got != "":
				rt.Fatalf("after %v there is still a place", since)
			}
		})
	})
}

// However many are sent away: the newest keep their places, and the memory is bounded.
func TestPlacesAreBounded(t *testing.T) {
	t.Parallel()
	s := newSeniority()
	for n := range 3*seniorityMax + 100 {
		s.remember(sent("a", fmt.Sprint(n)), []byte("x"))
		if len(s.now)+len(s.older) > 2*seniorityMax {
			t.Fatalf("%d places", len(s.now)+len(s.older))
		}
	}
	for _, n := range []int{3*seniorityMax + 99, 2*seniorityMax + 200} {
		if s.recall(sent("a", fmt.Sprint(n))) == nil {
			t.Errorf("call %d has no place", n)
		}
	}
	if s.recall(sent("a", "0")) != nil {
		t.Error("the oldest is still there")
	}
}
