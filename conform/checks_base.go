package conform

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	ietfFirst    = "IETF draft §2.6"
	ietfErrors   = "IETF draft §2.7"
	ietfSyntax   = "IETF draft §2.1"
	ietfSecurity = "IETF draft §5"
	ietfReuse    = "IETF draft §2.2, §2.7"
	contract     = "retrysafe contract"
)

// once returns a step that is sent once.
func once(name, what string, request func(t *trial) *message) step {
	return step{name, what, 1, request}
}

// fixed returns a plan that is the same for all options.
func fixed(steps ...step) func(*settings) []step {
	return func(*settings) []step { return steps }
}

// plain is the operation under the trial's first key.
func plain(t *trial) *message { return t.op(0).message() }

// firstAndRetry is the plan of checks that compare an answer with its replay.
var firstAndRetry = fixed(once("first", "a new operation", plain), once("retry", "the same request again", plain))

// notDone returns the finding for a first request that should have succeeded.
func notDone(a *answer) finding { return badSetup("the first request was answered %s", a) }

// onReplay is the run of a check that compares the answer of a first request, if it has
// succeeded, with that of its retry.
func onReplay(judge func(t *trial, first, retry *answer) finding) func(t *trial) finding {
	return func(t *trial) finding {
		first, retry := t.send("first"), t.send("retry")
		if !first.ok() {
			return notDone(first)
		}
		return judge(t, first, retry)
	}
}

var baseChecks = []check{
	{
		id: "base/answer", clause: contract, severity: critical,
		says: "A request under a new key succeeds.",
		plan: fixed(
			once("first", "a new operation", plain),
			once("second", "another one", func(t *trial) *message { return t.op(1).message() }),
		),
		run: func(t *trial) finding {
			first := t.send("first")
			if !first.ok() {
				return badSetup("a request under a new key was answered %s; it has to succeed, or nothing can be said about its retries", first)
			}
			second := t.send("second")
			if !second.ok() {
				return badSetup("the first request under a new key succeeded, and the second was answered %s; if an operation can be done once only, put {{unique}} into it", second)
			}
			return hold("answered %s", first)
		},
	},
	{
		id: "base/effects", clause: contract, severity: critical, needs: []string{"base/answer"}, probes: 2,
		says: "The effects URL counts one effect for one operation.",
		missing: func(s *settings) string {
			if s.probe == nil {
				return "no effects URL is given, so effects are inferred from answers"
			}
			return ""
		},
		plan: fixed(once("first", "a new operation", plain)),
		run: func(t *trial) finding {
			t.baseline()
			first := t.send("first")
			if !first.ok() {
				return notDone(first)
			}
			if n := t.effects(0, first); n != 1 && t.probeErr == nil {
				return badSetup("one operation was done, and the effects URL counts %d", n)
			}
			return hold("one operation, one effect")
		},
	},
}

// execution returns the finding for a request that must not run.
func notRun(a *answer, what string) finding {
	switch {
	case a.ok():
		return fails("%s ran: it was answered %s", what, a)
	case a.err != nil || a.refused():
		return hold("refused: %s", a)
	default:
		return fails("%s was not refused but answered %s", what, a)
	}
}

var keyChecks = []check{
	{
		id: "key/missing", clause: ietfErrors, severity: major, needs: []string{"base/answer"},
		says: "A request without a key does not run.",
		plan: fixed(once("bare", "the operation without a key", func(t *trial) *message { return t.op(0).under().message() })),
		run: func(t *trial) finding {
			a := t.send("bare")
			if a.ok() && t.s.profile.Optional {
				return observed("keys are optional: a request without one runs, and so does its retry")
			}
			return notRun(a, "a request without a key")
		},
	},
	{
		id: "key/missing-explained", clause: ietfErrors, severity: minor, needs: []string{"key/missing"},
		says: "The refusal of a request without a key has the status of the profile, and says what is missing.",
		plan: fixed(once("bare", "the operation without a key", func(t *trial) *message { return t.op(0).under().message() })),
		run: func(t *trial) finding {
			a := t.send("bare")
			switch {
			case a.ok() && t.s.profile.Optional:
				return untested("keys are optional")
			case !refusal(a, t.s.profile.Missing):
				return fails("answered %s, want %s", a, statuses(t.s.profile.Missing))
			case !explained(a):
				return fails("neither a problem document, an error message in JSON, nor a Link to a description came with the %s", a)
			}
			return hold("%s, with an explanation", a)
		},
	},
	{
		id: "key/empty", clause: ietfSyntax, severity: major, needs: []string{"base/answer"},
		says: "An empty key is refused: all clients that send none would share it.",
		plan: fixed(once("empty", "the operation under an empty key", func(t *trial) *message { return t.op(0).under("").message() })),
		run: func(t *trial) finding {
			a := t.send("empty")
			if a.ok() && t.s.profile.Optional {
				return observed("an empty key counts as none")
			}
			return notRun(a, "a request with an empty key")
		},
	},
	{
		id: "key/malformed", clause: ietfSyntax + ", §5", severity: minor, needs: []string{"key/empty"},
		says: "A key that is not well-formed is refused: control characters, and with quoted keys half a pair of quotes.",
		plan: func(s *settings) []step {
			steps := []step{once("control", "a key with a control character in it", func(t *trial) *message {
				return t.op(0).under(t.quoted("conform-" + t.s.RunID + "\x01control")).message()
			})}
			if !s.profile.Opaque {
				steps = append(steps, once("half", "a key with half a pair of quotes", func(t *trial) *message { return t.op(1).under(`"` + t.key(1)).message() }))
			}
			return steps
		},
		run: func(t *trial) finding {
			for _, s := range t.steps {
				if s.name == probeStep {
					continue
				}
				if f := notRun(t.send(s.name), s.what); f.verdict != holds {
					return f
				}
			}
			return hold("refused")
		},
	},
	{
		id: "key/repeated", clause: ietfSyntax, severity: major, needs: []string{"base/answer"},
		says: "A request with two keys is refused: it is not known which one its retry will have.",
		plan: fixed(once("two", "the operation with two lines of the key's header", func(t *trial) *message {
			return t.op(0).under(t.quoted(t.key(0)), t.quoted(t.key(1))).message()
		})),
		run: func(t *trial) finding { return notRun(t.send("two"), "a request with two keys") },
	},
	{
		id: "key/longest", clause: "Stripe; ACP §6", severity: minor, needs: []string{"base/answer"},
		says:    "A key of the longest length is accepted.",
		missing: noUUID,
		plan: fixed(once("longest", "a key of the longest length", func(t *trial) *message {
			return t.op(0).under(t.quoted(padded(t.key(0), t.s.profile.MaxKey))).message()
		})),
		run: func(t *trial) finding {
			a := t.send("longest")
			if !a.ok() {
				return fails("a key of %d characters was answered %s", t.s.profile.MaxKey, a)
			}
			return hold("a key of %d characters is accepted", t.s.profile.MaxKey)
		},
	},
	{
		id: "key/too-long", clause: ietfSecurity, severity: critical, needs: []string{"replay/effect"},
		says:    "A key that is too long is refused or taken whole, never cut: two operations would share one key.",
		missing: noUUID,
		plan: fixed(
			once("first", "a key that is too long", func(t *trial) *message { return t.op(0).under(t.tooLong("a")).message() }),
			once("second", "one that differs in its last character", func(t *trial) *message { return t.op(0).under(t.tooLong("b")).message() }),
		),
		run: func(t *trial) finding {
			first := t.send("first")
			if !first.ok() {
				return hold("not accepted: %s", first)
			}
			if second := t.send("second"); second.ok() && t.isReplayOf(second, first) {
				return fails("two keys that differ after %d characters are one: the second operation got the answer of the first", t.s.profile.MaxKey)
			}
			return hold("longer keys are taken whole")
		},
	},
	{
		id: "key/quoted", clause: ietfSyntax, severity: major, needs: []string{"replay/effect"},
		says: `The key "k" in quotes and the bare key k are the same one, or one form is refused.`,
		missing: func(s *settings) string {
			if s.profile.Opaque {
				return "keys are opaque in this profile: quotes are part of them"
			}
			return ""
		},
		plan: fixed(
			once("quoted", "a new operation, its key in quotes", plain),
			once("bare", "the same request, its key without quotes", func(t *trial) *message { return t.op(0).under(t.key(0)).message() }),
		),
		run: func(t *trial) finding {
			quoted, bare := t.send("quoted"), t.send("bare")
			switch {
			case !quoted.ok():
				return notDone(quoted)
			case bare.ok() && !t.isReplayOf(bare, quoted):
				return fails("the request ran again when its key was sent without quotes")
			case bare.ok():
				return hold("both forms are the same key")
			case bare.refused() && !t.pending(bare):
				return hold("bare keys are refused: %s", bare)
			}
			return fails("the bare key was answered %s", bare)
		},
	},
	{
		id: "key/case", clause: contract, severity: major, needs: []string{"replay/effect"},
		says:    "Keys that differ in upper and lower case are two keys.",
		missing: noUUID,
		plan: fixed(
			once("lower", "a new operation", func(t *trial) *message { return t.op(0).under(t.quoted(t.key(0) + "-k")).message() }),
			once("upper", "another one, whose key differs in the case of one letter", func(t *trial) *message { return t.op(0).under(t.quoted(t.key(0) + "-K")).message() }),
		),
		run: func(t *trial) finding {
			lower, upper := t.send("lower"), t.send("upper")
			switch {
			case !lower.ok():
				return notDone(lower)
			case !upper.ok() || t.isReplayOf(upper, lower):
				return fails("an operation under another key was answered %s as if it were a retry", upper)
			}
			return hold("two keys, two operations")
		},
	},
}

func noUUID(s *settings) string {
	if s.profile.UUID {
		return "keys are UUIDs in this profile"
	}
	return ""
}

func padded(key string, n int) string { return key + strings.Repeat("x", max(n-len(key), 0)) }

// tooLong returns a key over the limit, on the wire, that ends in a text.
func (t *trial) tooLong(end string) string {
	return t.quoted(padded(t.key(0), t.s.profile.MaxKey+44) + end)
}

// isReplayOf reports whether an answer under another name is that of the first operation.
// If all operations are answered alike, only a marker tells.
func (t *trial) isReplayOf(a, first *answer) bool {
	if t.replayed(a) {
		return true
	}
	if x, y := t.s.Effects.name(a), t.s.Effects.name(first); x != "" && y != "" {
		return x == y
	}
	if t.alike {
		t.weak = weakAlike
		return false
	}
	return a.same(first)
}

// explained reports whether a refusal says what is wrong, in a form for programs.
func explained(a *answer) bool {
	if slices.ContainsFunc(a.header.Values("Link"), func(l string) bool { return strings.Contains(l, "describedby") || strings.Contains(l, "help") }) {
		return true
	}
	var problem struct {
		Title, Type, Detail, Message, Code string
		Error                              json.RawMessage
		Errors                             json.RawMessage
	}
	if json.Unmarshal(a.body, &problem) != nil {
		return false
	}
	return problem.Title != "" || problem.Type != "" || problem.Detail != "" || problem.Message != "" || problem.Code != "" ||
		len(problem.Error) > 0 || len(problem.Errors) > 0
}

// headersThatStay are the response headers that belong to an answer, not to an exchange.
var headersThatStay = []string{"Content-Type", "Content-Language", "Location", "Etag", "Link"}

var replayChecks = []check{
	{
		id: "replay/effect", clause: ietfFirst, severity: critical, needs: []string{"base/answer"}, probes: 2,
		says: "A retry of a completed request does not run it again.",
		plan: firstAndRetry,
		run: func(t *trial) finding {
			t.baseline()
			first, retry := t.send("first"), t.send("retry")
			if !first.ok() {
				return notDone(first)
			}
			if retry.err != nil {
				return badSetup("the retry got %s", retry)
			}
			if n := t.effects(0, first, retry); n > 1 {
				return fails("one request and its retry had %d effects", n)
			}
			return hold("one effect; the retry was answered %s", retry)
		},
	},
	{
		id: "replay/status", clause: ietfFirst, severity: major, needs: []string{"replay/effect"},
		says: "A retry of a completed request has the status of the first answer.",
		plan: firstAndRetry,
		run: onReplay(func(t *trial, first, retry *answer) finding {
			if first.status != retry.status {
				return fails("the first answer was %s, and the retry's %s", first, retry)
			}
			return hold("%s, twice", first)
		}),
	},
	{
		id: "replay/bytes", clause: ietfFirst, severity: major, needs: []string{"replay/status"},
		says: "A retry of a completed request gets the body of the first answer, byte for byte.",
		plan: firstAndRetry,
		run: onReplay(func(t *trial, first, retry *answer) finding {
			switch {
			case string(first.body) == string(retry.body):
				return hold("%d bytes, the same", len(first.body))
			case first.same(retry):
				return fails("the replay says the same in other bytes: it was written anew, so signatures and checksums of it differ")
			}
			return fails("the replay has another body than the first answer")
		}),
	},
	{
		id: "replay/headers", clause: ietfFirst, severity: major, needs: []string{"replay/status"},
		says: "A retry of a completed request gets the headers that belong to the answer: " + strings.Join(headersThatStay, ", ") + ".",
		plan: firstAndRetry,
		run: onReplay(func(t *trial, first, retry *answer) finding {
			for _, name := range headersThatStay {
				if was, is := first.header.Values(name), retry.header.Values(name); len(was) > 0 && !slices.Equal(was, is) {
					return fails("the first answer has %s: %s, and the replay %s", name, strings.Join(was, ", "), orNone(strings.Join(is, ", ")))
				}
			}
			return hold("they are the same")
		}),
	},
	{
		id: "replay/cookies", clause: contract, severity: critical, needs: []string{"replay/status"},
		says: "A replay sets no cookie of the first answer: it may belong to another session.",
		plan: firstAndRetry,
		run: onReplay(func(t *trial, first, retry *answer) finding {
			cookies := first.header.Values("Set-Cookie")
			if len(cookies) == 0 {
				return untested("the answer sets no cookie")
			}
			for _, c := range retry.header.Values("Set-Cookie") {
				if slices.Contains(cookies, c) {
					return fails("the replay sets the cookie of the first answer")
				}
			}
			return hold("the cookie is not replayed")
		}),
	},
	{
		id: "replay/marker", clause: "Stripe; ACP §6", severity: minor, needs: []string{"replay/status"},
		says: "A replay is marked as one, and a first answer is not.",
		missing: func(s *settings) string {
			if s.profile.Marker == "" {
				return "the profile names no marker"
			}
			return ""
		},
		plan: firstAndRetry,
		run: onReplay(func(t *trial, first, retry *answer) finding {
			switch {
			case t.replayed(first):
				return fails("the first answer is marked as a replay")
			case !t.replayed(retry):
				return fails("the replay has no %s: true%s", t.s.profile.Marker, otherMarker(retry))
			}
			return hold("%s: true", t.s.profile.Marker)
		}),
	},
	{
		id: "replay/expiry", clause: "IETF draft §2.3, §2.5.2", severity: minor, needs: []string{"base/answer"},
		says: "An answer says until when it is kept, as a date in the future.",
		missing: func(s *settings) string {
			if s.profile.Expires == "" {
				return "the profile names no header for it"
			}
			return ""
		},
		plan: fixed(once("first", "a new operation", plain)),
		run: func(t *trial) finding {
			first := t.send("first")
			if !first.ok() {
				return notDone(first)
			}
			value := first.header.Get(t.s.profile.Expires)
			if value == "" {
				return unsupported("the answer has no %s; then the documentation of the API has to say it", t.s.profile.Expires)
			}
			at, err := http.ParseTime(value)
			if err != nil {
				return fails("%s: %s is not a date of HTTP", t.s.profile.Expires, value)
			}
			if !at.After(time.Now().Add(-time.Minute)) {
				return fails("%s: %s is in the past", t.s.profile.Expires, value)
			}
			return hold("%s: %s", t.s.profile.Expires, value)
		},
	},
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// otherMarker names a marker of another API in an answer.
func otherMarker(a *answer) string {
	for _, name := range []string{
		"Idempotent-Replayed", "Idempotency-Replayed", "X-Idempotent-Replayed", "Idempotent-Replay", "Idempotency-Replay", "X-Idempotency-Replayed",
		"Idempotency-Hit", "X-Idempotency-Cache", "X-Idempotency-Cache-Hit", "X-Idempotency-Cached", "X-Idempotency-Status", "Request-Idempotency", "Idempotency-Status",
	} {
		if v := a.header.Get(name); v != "" {
			return "; it has " + name + ": " + v
		}
	}
	return ""
}
