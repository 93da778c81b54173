package client_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// receipts gathers what WithOnCommit hears.
type receipts struct {
	mu   sync.Mutex
	got  []client.Receipt
	errs []error
}

func (r *receipts) hear(got client.Receipt, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got, r.errs = append(r.got, got), append(r.errs, err)
}

func TestCommitsRideOnTheNextRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var heard receipts
		c := f.client(t, client.WithUnary(), client.WithSettle(50*time.Millisecond), client.WithOnCommit(heard.hear))
		for range 3 {
			l, err := c.Acquire(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			l.CommitLater(client.Report{Usage: client.Usage{Output: 7}}, nil)
		}
		if rpcs, _, _ := f.counts(); rpcs != 3 {
			t.Errorf("%d RPCs for 3 leases, want 3", rpcs)
		}
		requests, _, _ := f.seen()
		if len(requests[1].GetSettle()) != 1 || requests[1].GetSettle()[0].GetLeaseId() != "lease-1" {
			t.Errorf("second request carries %v", requests[1].GetSettle())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if rpcs, _, _ := f.counts(); rpcs != 4 {
			t.Errorf("%d RPCs, want the last commit alone after its linger", rpcs)
		}
		if len(heard.got) != 3 || heard.got[2].Tokens != 7 || slices.ContainsFunc(heard.errs, func(e error) bool { return e != nil }) {
			t.Errorf("heard %+v, %v", heard.got, heard.errs)
		}
	})
}

func TestCommitThatRodeInVainIsSentAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var heard receipts
		c := f.client(t, client.WithUnary(), client.WithSettle(time.Minute), client.WithOnCommit(heard.hear))
		l, err := c.Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		l.CommitLater(client.Report{Usage: client.Usage{Output: 7}}, nil)
		f.mu.Lock()
		f.onCommit = func(*tbav1.LeaseCommit) (*tbav1.CommitResponse, error) {
			return nil, refusal(codes.Unavailable, "journal", 0)
		}
		f.mu.Unlock()
		if _, err := c.Acquire(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.onCommit = nil
		f.mu.Unlock()
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(heard.got) != 1 || heard.got[0].Tokens != 7 || heard.errs[0] != nil {
			t.Errorf("heard %+v, %v", heard.got, heard.errs)
		}
	})
}

func TestCommitSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		var heard receipts
		c := f.client(t, append(opts, client.WithOnCommit(heard.hear))...)
		l, err := c.Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		f.stop()
		_, err = l.Commit(t.Context(), client.Usage{Output: 9})
		var away *client.UnavailableError
		if !errors.As(err, &away) || !away.Queued {
			t.Fatalf("got %#v", err)
		}
		<-time.After(10 * time.Minute)
		f.start()
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(heard.got) != 1 || heard.got[0].Tokens != 9 || heard.errs[0] != nil {
			t.Errorf("heard %+v, %v", heard.got, heard.errs)
		}
	})
}

func TestPendingCommitIsRepeatedUntilStored(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		var heard receipts
		c := f.client(t, append(opts, client.WithOnCommit(heard.hear))...)
		l, err := c.Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		left := 3
		f.onCommit = func(*tbav1.LeaseCommit) (*tbav1.CommitResponse, error) {
			if left--; left > 0 {
				return &tbav1.CommitResponse{Result: tbav1.CommitResponse_ACCEPTED_PENDING}, nil
			}
			return &tbav1.CommitResponse{RecordedTokens: 9}, nil
		}
		if r, err := l.Commit(t.Context(), client.Usage{Output: 9}); err != nil || !r.Pending {
			t.Errorf("receipt %+v, %v", r, err)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(heard.got) != 1 || heard.got[0].Tokens != 9 || heard.got[0].Pending {
			t.Errorf("heard %+v", heard.got)
		}
	})
}

func TestCommitThatDidNotCountIsAnError(t *testing.T) {
	t.Parallel()
	for result, want := range map[tbav1.CommitResponse_Result]string{
		tbav1.CommitResponse_RECORDED: "", tbav1.CommitResponse_ALREADY_RECORDED: "",
		tbav1.CommitResponse_CONFLICT: "conflict", tbav1.CommitResponse_TOO_OLD: "too_old", tbav1.CommitResponse_UNKNOWN_LEASE: "unknown_lease",
	} {
		t.Run(result.String(), func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.onCommit = func(*tbav1.LeaseCommit) (*tbav1.CommitResponse, error) {
				return &tbav1.CommitResponse{Result: result, RecordedTokens: 4, Flags: []tbav1.CommitResponse_Flag{
					tbav1.CommitResponse_LATE, tbav1.CommitResponse_OVERRUN, tbav1.CommitResponse_AFTER_RELEASE, tbav1.CommitResponse_RECREATED,
				}}, nil
			}
			l, err := f.client(t).Acquire(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.Commit(t.Context(), client.Usage{Output: 5})
			if r.Tokens != 4 || !r.Late || !r.Overrun || !r.AfterRelease || !r.Recreated || r.Repeated != (result == tbav1.CommitResponse_ALREADY_RECORDED) {
				t.Errorf("receipt %+v", r)
			}
			var no *client.CommitError
			if errors.As(err, &no) != (want != "") || (no != nil && (no.Reason != want || !client.Decided(err))) {
				t.Errorf("got %v, want reason %q", err, want)
			}
		})
	}
}
