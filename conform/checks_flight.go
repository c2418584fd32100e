package conform

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

func needSlow(s *settings) string {
	if len(s.Slow) == 0 {
		return "no header is given that makes the API slow"
	}
	return ""
}

// slow is the operation under the first key, made slow if the API can be.
func slow(t *trial) *message { return t.op(0).with(t.s.Slow).message() }

var (
	flightPlan = fixed(once("first", "a new operation that takes long", slow), once("second", "the same request while it is in flight", slow))
)

// again is a step that is repeated until the request is no longer in flight.
func again(what string) func(s *settings) step {
	return func(s *settings) step { return step{"again", what + ", until it has an answer", s.polls(), plain} }
}

// racePlan is the plan of checks in which requests race.
func racePlan(s *settings) []step {
	return []step{{"race", "the same request, all at once", s.Racers, slow}, again("the same request afterwards")(s)}
}

var flightChecks = []check{
	{
		id: "race/effects", clause: ietfFirst, severity: critical, needs: []string{"replay/effect"}, probes: 2,
		says: "Of many equal requests at the same time one runs.",
		plan: racePlan,
		run: func(t *trial) finding {
			t.baseline()
			answers := t.race("race", t.s.Racers)
			answers = append(answers, t.await("again"))
			if n := t.effects(0, t.likeHome(answers)...); n > 1 {
				return fails("%d equal requests at the same time had %d effects", t.s.Racers, n)
			}
			return hold("%d requests, one effect", t.s.Racers)
		},
	},
	{
		id: "inflight/status", clause: ietfErrors, severity: major, needs: []string{"race/effects"}, missing: needSlow,
		says: "A retry of a request in flight is told so, or waits for its answer; it never gets another success.",
		plan: flightPlan,
		run: func(t *trial) finding {
			first, second, met := t.flight("first", "second")
			switch {
			case !met:
				return tooFast()
			case first.ok() && t.pending(second), second.ok() && t.pending(first):
				return hold("%s", either(t.pending(first), first, second))
			case first.same(second) && first.ok():
				return hold("the retry got the same answer")
			case first.ok() && second.ok():
				return fails("one was answered %s, the other %s with another body, and neither says that it is in flight", first, second)
			}
			return fails("one was answered %s, the other %s, want %s for a request in flight", first, second, statuses(t.s.profile.InFlight))
		},
	},
	{
		id: "inflight/retry-after", clause: "RFC 9110 §10.2.3; ACP §6", severity: minor, needs: []string{"inflight/status"}, missing: needSlow,
		says: "A refusal for a request in flight says when to retry, and not much later than it takes.",
		plan: flightPlan,
		run: func(t *trial) finding {
			first, second, _ := t.flight("first", "second")
			refused, ran := first, second
			if t.pending(second) {
				refused, ran = second, first
			}
			if !t.pending(refused) {
				return untested("no request was seen in flight; the API has to be slower")
			}
			value := refused.header.Get("Retry-After")
			if value == "" {
				return fails("the %s has no Retry-After", refused)
			}
			wait, ok := retryAfter(value)
			if !ok {
				return fails("Retry-After: %s is neither seconds nor a date", value)
			}
			if most := max(10*time.Second, 3*ran.took); wait > most {
				return fails("Retry-After: %s, and the request took %s", value, ran.took.Round(10*time.Millisecond))
			}
			return hold("Retry-After: %s", value)
		},
	},
	{
		id: "inflight/mismatch", clause: ietfReuse, severity: critical, needs: []string{"inflight/status", "mismatch/refused"}, probes: 2,
		missing: func(s *settings) string {
			if why := needSlow(s); why != "" {
				return why
			}
			return needOther(s)
		},
		says: "A different request under the key of a request in flight does not run.",
		plan: fixed(
			once("first", "a new operation that takes long", slow),
			once("other", "another body under the same key while it is in flight", func(t *trial) *message {
				return t.op(0).other(t.s.OtherBody).with(t.s.Slow).message()
			}),
		),
		run: func(t *trial) finding {
			t.baseline()
			first, other, met := t.flight("first", "other")
			switch {
			case !met:
				return tooFast()
			case first.ok() && other.ok():
				return fails("two different requests under one key were both answered with success")
			case !first.ok() && !other.ok():
				return fails("of two different requests under one key neither ran: %s and %s", first, other)
			}
			if n := t.effects(0, first, other); n > 1 {
				return fails("two different requests under one key had %d effects", n)
			}
			return hold("refused: %s", either(first.ok(), other, first))
		},
	},
	{
		id: "race/answers", clause: ietfFirst, severity: major, needs: []string{"race/effects", "inflight/status", "replay/status"},
		says: "Of many equal requests at the same time each gets the answer or is told that it is in flight, and a retry gets the answer.",
		plan: racePlan,
		run: func(t *trial) finding {
			answers := t.race("race", t.s.Racers)
			last := t.await("again")
			if !last.ok() || t.pending(last) {
				return fails("after a race the retry was answered %s", last)
			}
			for _, a := range answers {
				if !t.pending(a) && !a.same(last) {
					return fails("one of the requests was answered %s, and the retry afterwards %s", a, last)
				}
			}
			return hold("one answer for all of them")
		},
	},
	{
		id: "slow/effects", clause: ietfFirst, severity: critical, needs: []string{"inflight/status", "replay/status"}, missing: needSlow, probes: 2,
		says: "A request that takes long runs once, however often it is retried meanwhile, and its retry gets the answer of the first client.",
		plan: func(s *settings) []step {
			return []step{once("first", "a new operation that takes long", slow), {"again", "the same request, until it has an answer", s.polls(), slow}}
		},
		run: func(t *trial) finding {
			t.baseline()
			first := t.begin("first", nil)
			<-first.written
			_ = sleep(t.ctx, t.pause())
			met := !first.isDone()
			last := t.await("again")
			a := first.wait()
			if !met {
				return tooFast()
			}
			if t.pending(a) { // the retry was faster
				a = last
			}
			if n := t.effects(0, t.likeHome([]*answer{a, last})...); n > 1 {
				return fails("a request that took %s had %d effects", a.took.Round(10*time.Millisecond), n)
			}
			switch {
			case t.pending(last):
				return fails("after %s the retry is still told that it is in flight", t.s.Patience)
			case !a.ok() || !last.same(a):
				return fails("the first client got %s, and the retry %s and something else", a, last)
			}
			return hold("one effect, one answer")
		},
	},
	{
		id: "disconnect/retry", clause: ietfFirst, severity: critical, needs: []string{"race/effects", "inflight/status"}, blind: true, probes: 2,
		says: "If the client hangs up before the answer, the operation is not lost and not run again: a retry gets its answer.",
		plan: func(s *settings) []step {
			return []step{once("first", "a new operation whose client hangs up", func(t *trial) *message {
				m := slow(t)
				m.hangUp = t.pause()
				return m
			}), again("the same request")(s)}
		},
		run: func(t *trial) finding {
			t.baseline()
			t.send("first")
			last := t.await("again")
			if n := t.effects(0, last); n > 1 {
				return fails("the client hung up, and its retry ran the operation again: %d effects", n)
			}
			switch {
			case t.unknown(last):
				return hold("the retry is told that the outcome is unknown: %s", last)
			case t.pending(last):
				return fails("%s after the client hung up its retry is still told that it is in flight", t.s.Patience)
			case !last.ok():
				return fails("the retry was answered %s", last)
			}
			return hold("the retry was answered %s", last)
		},
	},
	{
		id: "disconnect/partial", clause: "RFC 9112 §8", severity: critical, needs: []string{"replay/effect"}, blind: true, probes: 2,
		says: "A request that was cut off in its body neither runs nor uses up its key.",
		missing: func(s *settings) string {
			if len(s.Request.Body) < 2 {
				return "the request has no body"
			}
			return ""
		},
		plan: func(s *settings) []step {
			return []step{once("half", "half of a request, then the connection is closed", func(t *trial) *message {
				m := plain(t)
				m.cut = len(m.body) / 2
				return m
			}), again("the whole request")(s)}
		},
		run: func(t *trial) finding {
			t.baseline()
			t.send("half")
			last := t.await("again")
			if n := t.effects(0, last); n > 1 {
				return fails("half a request and its retry had %d effects", n)
			}
			if !last.ok() || t.pending(last) {
				return fails("after half a request the whole one was answered %s", last)
			}
			return hold("the whole request was answered %s", last)
		},
	},
}

func either[T any](which bool, a, b T) T {
	if which {
		return a
	}
	return b
}

// likeHome returns the answers that look like that of a new operation. Without a probe the
// others are no evidence of an effect.
func (t *trial) likeHome(all []*answer) (like []*answer) {
	for _, a := range all {
		if t.home == nil || a.status == t.home.status {
			like = append(like, a)
		}
	}
	return like
}

func retryAfter(value string) (time.Duration, bool) {
	if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n >= 0 {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return time.Until(at), true
	}
	return 0, false
}
