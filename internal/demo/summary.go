package demo

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/mockprovider"
)

// Summary is the outcome of a run. What the arbiter did is counted at the SDK's connection and in the gateway's refusals; what
// really happened (429, used tokens, overshoot, violations) in the mock providers' own books.
type Summary struct {
	Seconds float64 `json:"seconds"`
	Agents  int     `json:"agents"`
	// Calls were begun by agents; GaveUp ended without a lease because time or patience did, Failed in another way.
	Calls  int64 `json:"calls"`
	GaveUp int64 `json:"gave_up"`
	Failed int64 `json:"failed"`
	// LastFailure is the error of one failed call, empty without one.
	LastFailure string `json:"last_failure,omitempty"`
	// Granted, Deferred and Denied count answers to lease requests, RefusedBy the reasons of the last two.
	Granted   int64            `json:"granted"`
	Deferred  int64            `json:"deferred"`
	Denied    int64            `json:"denied"`
	RefusedBy map[string]int64 `json:"refused_by"`
	// Finished calls have their answer. ProviderCalls are the arrivals at the providers, and ProviderCallsPerTask how many of
	// them one finished call took (amplification).
	Finished             int64   `json:"finished"`
	ProviderCalls        int64   `json:"provider_calls"`
	ProviderCallsPerTask float64 `json:"provider_calls_per_task"`
	// Gateway says that half of the fleet called it, and that two providers failed for a while.
	Gateway bool `json:"gateway"`
	// Failovers are calls that reached a second provider, Returned the answers of the providers that had failed after that, and
	// AgentRetries the tries of programs that know nothing of leases.
	Failovers    int64 `json:"failovers"`
	Returned     int64 `json:"returned"`
	AgentRetries int64 `json:"agent_retries"`
	// Provider429 counts the providers' answers of that status for a limit of theirs, Storm429 those of the scripted storm,
	// OutageErrors the errors of the scripted outage.
	Provider429  int64 `json:"provider_429"`
	Storm429     int64 `json:"storm_429"`
	OutageErrors int64 `json:"outage_errors"`
	// CommittedTokens is what was recorded: by the receipts of the SDK, and as the answers through the gateway said. UsedTokens
	// is what the providers really gave out.
	CommittedTokens int64 `json:"committed_tokens"`
	UsedTokens      int64 `json:"used_tokens"`
	// BudgetOvershootTokens is what was used above the global budget and the slices of the providers, added up.
	BudgetOvershootTokens int64 `json:"budget_overshoot_tokens"`
	// WindowViolations counts arrivals at a provider that put a 60 s window above a declared ceiling, SlotViolations
	// arrivals that found every slot taken.
	WindowViolations int64 `json:"window_violations"`
	SlotViolations   int64 `json:"slot_violations"`
	// GrantP50 and GrantP99 are µs from question to grant, of requests that asked for an answer at once.
	GrantP50 int64 `json:"grant_p50_us"`
	GrantP99 int64 `json:"grant_p99_us"`
	// LeasesOpen at the end.
	LeasesOpen int64 `json:"leases_open"`
	// Trace names the source of the replayed calls.
	Trace string `json:"trace"`
}

// maxPerTask bounds ProviderCallsPerTask: of ten calls one may be in vain.
const maxPerTask = 1.10

// mustBind are the reasons that have to refuse or delay somebody, or the run proves nothing.
var mustBind = []string{"rpm", "tpm", "slots", "budget"}

// Check says what is wrong with the run: a broken promise, or a limit that never had to refuse anybody. nil: nothing.
func (s Summary) Check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if s.BudgetOvershootTokens > 0 {
		fault("%d tokens were used above the budget", s.BudgetOvershootTokens)
	}
	if s.WindowViolations > 0 {
		fault("%d calls reached a provider above a ceiling of its windows", s.WindowViolations)
	}
	if s.SlotViolations > 0 {
		fault("%d calls found every slot of a provider taken", s.SlotViolations)
	}
	if s.ProviderCallsPerTask > maxPerTask {
		fault("a finished call took %.3f calls at the providers, more than %.2f", s.ProviderCallsPerTask, maxPerTask)
	}
	var idle []string
	for _, reason := range mustBind {
		if s.RefusedBy[reason] == 0 {
			idle = append(idle, reason)
		}
	}
	if len(idle) > 0 {
		fault("nobody was refused or delayed by %s, so the run proves nothing about it: let it run for 25s or longer, on a journal without an earlier run", strings.Join(idle, ", "))
	}
	if s.Gateway {
		for _, x := range [...]struct {
			n    int64
			what string
		}{{s.Storm429, "was throttled by the storm"}, {s.OutageErrors, "met the outage"}, {s.Failovers, "moved to another provider"}, {s.Returned, "came back to a provider after its failure"}} {
			if x.n == 0 {
				fault("no call %s, so the run proves nothing about it: let it run for 25s or longer", x.what)
			}
		}
	}
	return errors.Join(faults...)
}

// audit fills in what the providers' books say. periods is how many budget periods the run touched.
func (s *Summary) audit(scale Scale, reports []mockprovider.Report, periods int64) {
	var total int64
	for _, r := range reports {
		used := r.Used()
		total += used
		s.ProviderCalls += r.Calls
		s.Provider429 += r.Throttled
		s.Storm429 += r.Stormed
		s.OutageErrors += r.Failed
		s.WindowViolations += r.WindowViolations
		s.SlotViolations += r.SlotViolations
		for _, c := range scale.Ceilings {
			if c.Provider == r.Name {
				s.BudgetOvershootTokens += max(used-periods*c.Allocated, 0)
			}
		}
	}
	s.UsedTokens = total
	if s.Finished > 0 {
		s.ProviderCallsPerTask = math.Round(1000*float64(s.ProviderCalls)/float64(s.Finished)) / 1000
	}
	s.BudgetOvershootTokens += max(total-periods*scale.GlobalTokens, 0)
}

// books reads from the providers' own logs which jobs needed a second provider, and what a provider answered after its failure.
func (s *Summary) books(mocks *mockprovider.Server, scale Scale) {
	first := map[string]string{} // provider of a job, by trace
	moved := map[string]bool{}
	for _, c := range scale.Ceilings {
		calls := mocks.Calls(c.Provider)
		struck := -1
		for i, call := range calls {
			if call.Fault != "" {
				struck = i
			}
			if was, known := first[call.Trace]; !known {
				first[call.Trace] = c.Provider
			} else if was != c.Provider && call.Trace != "" {
				moved[call.Trace] = true
			}
		}
		for _, call := range calls[struck+1:] {
			if struck >= 0 && call.Status == http.StatusOK {
				s.Returned++
			}
		}
	}
	s.Failovers = int64(len(moved))
}

// WriteText prints the summary for people.
func (s Summary) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, `%d agents made %d calls in %.0f s: %d leases granted, %d deferred, %d denied; %d calls gave up, %d failed
refused by      %s
budget          %d tokens used, %d committed, overshoot %d
windows         %d violations, slots %d violations (from the providers' own logs)
providers       %d calls for %d finished ones: %.3f each; 429 for a limit of theirs %d times
storm, outage   %d times 429, %d errors; %d calls moved to another provider, %d were answered by them afterwards, agents tried again %d times
grant latency   p50 %d µs, p99 %d µs (requests that asked for an answer at once)
leases open     %d
%s
`, s.Agents, s.Calls, s.Seconds, s.Granted, s.Deferred, s.Denied, s.GaveUp, s.Failed, reasons(s.RefusedBy),
		s.UsedTokens, s.CommittedTokens, s.BudgetOvershootTokens, s.WindowViolations, s.SlotViolations,
		s.ProviderCalls, s.Finished, s.ProviderCallsPerTask, s.Provider429, s.Storm429, s.OutageErrors, s.Failovers, s.Returned, s.AgentRetries,
		s.GrantP50, s.GrantP99, s.LeasesOpen, s.Trace)
	if err == nil && s.LastFailure != "" {
		_, err = fmt.Fprintf(w, "last failure    %s\n", s.LastFailure)
	}
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// reasons lists counts by reason, the most frequent first.
func reasons(by map[string]int64) string {
	type count struct {
		reason string
		n      int64
	}
	var list []count
	for r, n := range by {
		list = append(list, count{r, n})
	}
	slices.SortFunc(list, func(a, b count) int {
		if a.n != b.n {
			return int(b.n - a.n)
		}
		return strings.Compare(a.reason, b.reason)
	})
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = fmt.Sprintf("%s %d", c.reason, c.n)
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}
