package gateway

import (
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// A daily quota that Gemini names with a wait of a minute is a throttle once; when it is out again after that minute it is gone for the day.
func TestAQuotaThatIsOutAgain(t *testing.T) {
	t.Parallel()
	var r repeats
	daily := func() provider.Verdict {
		return provider.Verdict{Class: provider.Throttle, Rule: "day", Wait: time.Minute, Hinted: true, Repeats: provider.Exhausted}
	}
	now := time.Unix(1_800_000_000, 0)
	for _, step := range []struct {
		after time.Duration
		want  provider.Class
	}{
		{0, provider.Throttle},
		{30 * time.Second, provider.Throttle}, // of a call that went up before
		{2 * time.Minute, provider.Exhausted},
		{time.Hour, provider.Throttle}, // forgotten
	} {
		v := daily()
		if r.judge("m", &v, now.Add(step.after)); v.Class != step.want {
			t.Errorf("after %v: %v, want %v", step.after, v.Class, step.want)
		}
	}
	v := daily()
	if r.judge("another", &v, now.Add(2*time.Minute)); v.Class != provider.Throttle {
		t.Errorf("another model: %v", v.Class)
	}
}

// A wait that grows doubles with each repeat, up to a bound; one that the provider named stays.
func TestAWaitThatGrows(t *testing.T) {
	t.Parallel()
	var r repeats
	now := time.Unix(1_800_000_000, 0)
	for i, want := range []time.Duration{15, 30, 60, 120, 240, 480, 600, 600} {
		v := provider.Verdict{Class: provider.Throttle, Rule: "ramp", Wait: 15 * time.Second, Grows: true}
		r.judge("m", &v, now)
		if v.Wait != want*time.Second {
			t.Errorf("time %d: %v, want %v", i, v.Wait, want*time.Second)
		}
		now = now.Add(v.Wait)
	}
	v := provider.Verdict{Class: provider.Throttle, Rule: "ramp", Wait: 3 * time.Second, Hinted: true, Grows: true}
	if r.judge("m", &v, now); v.Wait != 3*time.Second {
		t.Errorf("a wait of the provider's own became %v", v.Wait)
	}
}
