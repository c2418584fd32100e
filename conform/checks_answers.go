package conform

import (
	"net/http"
)

// provoked is the operation under the first key, with a header by which the API can be
// made to misbehave.
func provoked(h func(s *settings) http.Header) func(t *trial) *message {
	return func(t *trial) *message { return t.op(0).with(h(t.s)).message() }
}

func needHeader(h func(s *settings) http.Header, does string) func(s *settings) string {
	return func(s *settings) string {
		if len(h(s)) == 0 {
			return "no header is given that makes the API " + does
		}
		return ""
	}
}

func failHeader(s *settings) http.Header  { return s.Fail }
func limitHeader(s *settings) http.Header { return s.Limit }
func crashHeader(s *settings) http.Header { return s.Crash }

// crashPlan is the plan of checks in which the API dies.
func crashPlan(s *settings) []step {
	return []step{once("first", "a new operation that dies after its effect", provoked(crashHeader)), again("the same request")(s)}
}

var answerChecks = []check{
	{
		id: "answers/429", clause: "AdCP; Fullstory", severity: major, needs: []string{"replay/effect"}, probes: 2,
		missing: needHeader(limitHeader, "answer 429"),
		says:    "A 429 is about the moment and is not stored: a later retry runs.",
		plan: func(s *settings) []step {
			return []step{once("first", "a new operation over a limit", provoked(limitHeader)), again("the same request within the limit")(s)}
		},
		run: func(t *trial) finding {
			t.baseline()
			if first := t.send("first"); first.status != http.StatusTooManyRequests {
				return badSetup("the header that should lead to a 429 led to %s", first)
			}
			last := t.await("again")
			if n := t.effects(0, last); n > 1 {
				return fails("a 429 and its retry had %d effects", n)
			}
			switch {
			case last.status == http.StatusTooManyRequests:
				return fails("the 429 was stored: the retry got it again")
			case !last.ok():
				return fails("after a 429 the retry was answered %s", last)
			}
			return hold("the retry ran: %s", last)
		},
	},
	{
		id: "answers/5xx", clause: "ACP §6; Iceberg REST", severity: major, needs: []string{"replay/effect"}, probes: 2,
		missing: needHeader(failHeader, "answer with a 5xx"),
		says:    "A 5xx is not stored for good: a retry runs, or is told that the outcome is unknown. In profiles that keep failures it may be replayed.",
		plan: func(s *settings) []step {
			return []step{once("first", "a new operation that fails", provoked(failHeader)), again("the same request")(s)}
		},
		run: func(t *trial) finding {
			t.baseline()
			first := t.send("first")
			if first.err != nil || first.status < 500 {
				return badSetup("the header that should lead to a 5xx led to %s", first)
			}
			last := t.await("again")
			if n := t.effects(0, last); n > 1 {
				return fails("a request that failed and its retry had %d effects", n)
			}
			switch {
			case t.pending(last):
				return fails("%s after a %s the retry is still told that it is in flight", t.s.Patience, first)
			case t.unknown(last):
				return hold("the retry is told that the outcome is unknown")
			case last.status >= 500 && t.s.profile.KeepsFailures:
				return hold("the %s is kept, as the profile has it", first)
			case last.status >= 500:
				return fails("the retry got a %s again, though nothing fails any more: it was stored", last)
			case !last.ok():
				return fails("after a %s the retry was answered %s", first, last)
			}
			return hold("the retry ran: %s", last)
		},
	},
	{
		id: "crash/effects", clause: contract, severity: critical, needs: []string{"answers/5xx"}, blind: true, probes: 2,
		missing: needHeader(crashHeader, "die after its effect"),
		says:    "If the API dies between effect and answer, a retry does not run the operation a second time.",
		plan:    crashPlan,
		run: func(t *trial) finding {
			t.baseline()
			if first := t.send("first"); first.ok() {
				return badSetup("the header that should let the API die led to %s", first)
			}
			last := t.await("again")
			n := t.effects(0, last)
			if n > 1 {
				return fails("the API died after its effect, and the retry had a second one")
			}
			if t.weak != "" && last.ok() {
				return untested("the retry was answered %s; whether the operation ran twice only an effects URL can tell", last)
			}
			return hold("%s effect; the retry was answered %s", either(n == 1, "one", "no"), last)
		},
	},
	{
		id: "crash/settles", clause: contract, severity: major, needs: []string{"crash/effects"}, blind: true,
		missing: needHeader(crashHeader, "die after its effect"),
		says:    "After a crash a retry gets an answer, or is told that the outcome is unknown. It is not told forever that the request is in flight.",
		plan:    crashPlan,
		run: func(t *trial) finding {
			if first := t.send("first"); first.ok() {
				return badSetup("the header that should let the API die led to %s", first)
			}
			last := t.await("again")
			switch {
			case t.pending(last):
				return fails("%s after the API died, the retry is still told that the request is in flight: %s", t.s.Patience, last)
			case last.err != nil:
				return fails("the retry got %s", last)
			case t.unknown(last):
				return hold("the retry is told that the outcome is unknown")
			}
			return hold("the retry was answered %s", last)
		},
	},
}
