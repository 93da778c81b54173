package provider

import (
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// anyRules are tried after a dialect's own. The last one holds for every answer.
var anyRules = []Rule{
	{Name: "no_answer", Status: []int{0}, Class: Provider, Until: UntilBackoff, Ambiguous: true},
	{Name: "bedrock_day", Status: []int{429}, Codes: []string{"ThrottlingException"}, Text: []string{"too many tokens per day"}, Class: Exhausted, Until: UntilUTCDay},
	{Name: "bedrock_throttle", Status: []int{429}, Codes: []string{"ThrottlingException", "throttlingException"}, Class: Throttle, Until: UntilHint},
	{Name: "bedrock_not_ready", Status: []int{429}, Codes: []string{"ModelNotReadyException"}, Class: Overload, Until: UntilBackoff},
	{Name: "bedrock_unavailable", Status: []int{503}, Codes: []string{"ServiceUnavailableException", "serviceUnavailableException"}, Class: Overload, Until: UntilBackoff},
	{Name: "bedrock_quota", Status: []int{400}, Codes: []string{"ServiceQuotaExceededException"}, Class: Exhausted, Until: UntilOperator},
	{Name: "bedrock_model", Status: []int{424}, Class: Provider, Until: UntilBackoff},
	{Name: "any_payment", Status: []int{402}, Class: Exhausted, Until: UntilOperator},
	{Name: "any_credential", Status: []int{401, 403}, Class: Auth, Until: UntilOperator},
	{Name: "any_request", Status: []int{400, 404, 413, 422}, Class: Caller, Until: UntilNever},
	{Name: "any_conflict", Status: []int{409}, Class: Caller, Until: UntilShort},
	{Name: "any_timeout", Status: []int{408}, Class: Provider, Until: UntilShort, Ambiguous: true},
	// Somebody in between gave up on a provider that may be working still. Any other 5xx is an answer: it says that the
	// call was not carried out, and nothing is billed for it.
	{Name: "gateway_timeout", Status: []int{504, 520, 524}, Class: Provider, Until: UntilBackoff, Ambiguous: true},
	// HTML, plain text or nothing: an edge proxy speaks, and does not say which limit.
	{Name: "edge_throttle", Status: []int{429}, When: factNotJSON, Class: Throttle, Until: UntilHint, Default: 30 * time.Second},
	{Name: "any_throttle", Status: []int{429}, Class: Throttle, Until: UntilHint},
	{Name: "any_caller", Status: otherClientErrors(), Class: Caller, Until: UntilNever},
	{Name: "any_provider", Class: Provider, Until: UntilBackoff},
}

// otherClientErrors is every 4xx; the rules above have taken theirs by then.
func otherClientErrors() []int {
	list := make([]int, 0, 100)
	for s := 400; s < 500; s++ {
		list = append(list, s)
	}
	return list
}

// untilMonth is the time to 00:00 UTC on the first of the next month.
func untilMonth(now time.Time) time.Duration {
	now = now.UTC()
	return time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(now)
}

// untilUTCDay is the time to the next midnight UTC.
func untilUTCDay(now time.Time) time.Duration {
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

// untilPacificDay is the time to the next midnight in Los Angeles. A machine without a zone database gets standard
// time all the year, which in summer is an hour late and never early.
func untilPacificDay(now time.Time) time.Duration {
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		zone = time.FixedZone("PST", -8*60*60)
	}
	now = now.In(zone)
	return time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, zone).Sub(now)
}

var textDate = regexp.MustCompile(`(\d{4}-\d{2}-\d{2})(?:(?:T| at | )(\d{2}:\d{2}))?`)

// untilTextDate finds a date in a sentence such as "You will regain access on 2026-12-01 at 00:00 UTC."
func untilTextDate(message string, now time.Time) (time.Duration, bool) {
	m := textDate.FindStringSubmatch(message)
	if m == nil {
		return 0, false
	}
	clock := m[2]
	if clock == "" {
		clock = "00:00"
	}
	t, err := time.Parse("2006-01-02 15:04", m[1]+" "+clock)
	if err != nil {
		return 0, false
	}
	return until(t, now)
}

// maxMessage bounds the sentence that a verdict carries on.
const maxMessage = 300

// excerpt is the start of a message without control characters, cut between runes.
func excerpt(message string) string {
	message = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, message)
	if len(message) <= maxMessage {
		return message
	}
	cut := maxMessage
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut]
}
