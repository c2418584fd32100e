package conform

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// needOther says what is missing for a different request under the same key.
func needOther(s *settings) string {
	if len(s.OtherBody) == 0 {
		return "there is no other body: give one, because it cannot be made of this one"
	}
	return ""
}

func otherBody(t *trial) *message { return t.op(0).other(t.s.OtherBody).message() }

var (
	firstStep = once("first", "a new operation", plain)
	otherStep = once("other", "another body under the same key", otherBody)
	retryStep = once("retry", "the first request again", plain)
)

var mismatchChecks = []check{
	{
		id: "mismatch/refused", clause: ietfReuse, severity: critical, needs: []string{"replay/effect"}, probes: 2,
		says:    "A different request under a used key is refused: it neither runs nor gets the answer of the first one.",
		missing: needOther,
		plan:    fixed(firstStep, otherStep),
		run: func(t *trial) finding {
			t.baseline()
			first, other := t.send("first"), t.send("other")
			switch {
			case !first.ok():
				return notDone(first)
			case other.ok() && t.isReplayOf(other, first):
				return fails("a different request under the same key got the answer of the first one")
			case other.ok():
				return fails("a different request under the same key ran too")
			}
			if n := t.effects(0, first); n > 1 {
				return fails("a different request under the same key was answered %s, and there were %d effects", other, n)
			}
			return hold("refused: %s", other)
		},
	},
	{
		id: "mismatch/status", clause: ietfErrors, severity: minor, needs: []string{"mismatch/refused"},
		says:    "The refusal of a different request has the status of the profile, and says why.",
		missing: needOther,
		plan:    fixed(firstStep, otherStep),
		run: func(t *trial) finding {
			_, other := t.send("first"), t.send("other")
			switch {
			case !refusal(other, t.s.profile.Mismatch):
				return fails("answered %s, want %s", other, statuses(t.s.profile.Mismatch))
			case !explained(other):
				return fails("neither a problem document, an error message in JSON, nor a Link to a description came with the %s", other)
			}
			return hold("%s, with an explanation", other)
		},
	},
	{
		id: "mismatch/intact", clause: ietfReuse, severity: critical, needs: []string{"mismatch/refused", "replay/status"},
		says:    "A refused request leaves the first one untouched: its retry still gets its answer.",
		missing: needOther,
		plan:    fixed(firstStep, otherStep, retryStep),
		run: func(t *trial) finding {
			first, _, retry := t.send("first"), t.send("other"), t.send("retry")
			if !retry.same(first) {
				return fails("after a different request was refused, the retry of the first one was answered %s and something else", retry)
			}
			return hold("the first answer is still there")
		},
	},
	{
		id: "mismatch/leak", clause: ietfSecurity + "; AdCP", severity: critical, needs: []string{"mismatch/refused"},
		says:    "The refusal of a different request tells nothing of the first one's payload.",
		missing: needOther,
		plan: func(s *settings) []step {
			plan := []step{firstStep, otherStep}
			if s.body != nil && s.body.leaf('0') != nil {
				plan = append([]step{
					once("marked", "a new operation with a conspicuous number", func(t *trial) *message { return t.op(1).written(t.marked()).message() }),
					once("other to marked", "another body under the same key", func(t *trial) *message { return t.op(1).other(t.s.OtherBody).message() }),
				}, plan...)
			}
			return plan
		},
		run: func(t *trial) finding {
			var first, other *answer
			if t.marked() != nil {
				if first = t.send("marked"); first.ok() {
					other = t.send("other to marked")
				}
			}
			if other == nil { // the API does not take such a number
				first, other = t.send("first"), t.send("other")
			}
			tokens := secretsOf(first, other.sent)
			if len(tokens) == 0 {
				return untested("the first request and its answer have nothing that could be recognised; put {{unique}} into the body")
			}
			said := other.header.Clone()
			said.Del("Date")
			var head bytes.Buffer
			_ = said.Write(&head) // into memory
			for _, token := range tokens {
				if bytes.Contains(other.body, []byte(token)) || bytes.Contains(head.Bytes(), []byte(token)) {
					return fails("the refusal contains %q, which only the first request and its answer have", token)
				}
			}
			return hold("nothing of the first payload is in the refusal")
		},
	},
	{
		id: "mismatch/path", clause: "IETF draft §2.2", severity: critical, needs: []string{"mismatch/refused"},
		says: "The same key on another endpoint never gets the answer of the first one.",
		missing: func(s *settings) string {
			if s.OtherPath == "" {
				return "no other endpoint is given"
			}
			return ""
		},
		plan: fixed(firstStep, once("elsewhere", "the same key and body on another endpoint", func(t *trial) *message { return t.op(0).to(t.s.OtherPath).message() })),
		run: func(t *trial) finding {
			first, elsewhere := t.send("first"), t.send("elsewhere")
			switch {
			case !first.ok():
				return notDone(first)
			case elsewhere.ok() && t.isReplayOf(elsewhere, first):
				return fails("another endpoint gave the answer of the first one")
			case elsewhere.ok():
				return hold("keys belong to an endpoint: the other one ran")
			}
			return hold("refused: %s", elsewhere)
		},
	},
	{
		id: "methods/safe", clause: "RFC 9110 §9.2.1", severity: major, needs: []string{"replay/effect"},
		says: "A key on a safe method changes nothing: a GET is answered as without it.",
		plan: fixed(
			firstStep,
			once("get", "a GET of the same path, without a key", func(t *trial) *message { return t.get().under().message() }),
			once("keyed get", "the GET with the key of the operation", func(t *trial) *message { return t.get().message() }),
		),
		run: func(t *trial) finding {
			first, get, keyed := t.send("first"), t.send("get"), t.send("keyed get")
			switch {
			case !first.ok():
				return notDone(first)
			case t.replayed(keyed), keyed.same(first) && !get.same(first):
				return fails("a GET got the stored answer of the %s", t.s.Request.Method)
			case keyed.status != get.status:
				return fails("a GET is answered %s, and with a key %s", get, keyed)
			}
			return hold("a GET is answered %s with a key and without", get)
		},
	},
}

// get begins a GET of the operation's path.
func (t *trial) get() *mold {
	m := t.op(0)
	m.method, m.body = http.MethodGet, nil
	m.header.Del("Content-Type")
	return m
}

// marked returns the body with a number that occurs nowhere else, or nil.
func (t *trial) marked() []byte {
	if t.s.body == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(t.key(1)))
	return t.s.body.withNumber(strconv.Itoa(7_000_000 + int(binary.BigEndian.Uint32(sum[:])%1_000_000)))
}

var (
	timeLike = regexp.MustCompile(`^\d{4}-\d\d-\d\d|^1[6-9]\d{8}(\d{3})?(\.\d+)?$`)
	digit    = regexp.MustCompile(`\d`)
)

// secretsOf returns texts by which the payload of an operation is recognised: what its
// request and its answer have, and another request has not. Words without digits may be
// part of any message, and two answers may have the same time in them.
func secretsOf(first *answer, other *message) (tokens []string) {
	known := string(other.head()) + string(other.body)
	for _, body := range [][]byte{first.sent.body, first.body} {
		doc, err := parseNode(body)
		if err != nil {
			continue
		}
		doc.scalars(func(text string) {
			if len(text) >= 6 && digit.MatchString(text) && !timeLike.MatchString(text) && !strings.Contains(known, text) {
				tokens = append(tokens, text)
			}
		})
	}
	return tokens
}

func needCaller(s *settings) string {
	if len(s.OtherHeader) == 0 {
		return "no credentials of a second caller are given"
	}
	return ""
}

// anonymous is the operation without the headers that tell callers apart.
func anonymous(n int) func(t *trial) *message {
	return func(t *trial) *message { return t.op(n).without(t.s.OtherHeader).message() }
}

var scopeChecks = []check{
	{
		id: "scope/credentials", clause: ietfSecurity, severity: critical, needs: []string{"replay/effect"},
		says:    "A key belongs to its caller: another caller's request under the same key never gets the first one's answer.",
		missing: needCaller,
		plan: fixed(
			once("stranger", "a new operation of the second caller", func(t *trial) *message { return t.op(1).with(t.s.OtherHeader).message() }),
			firstStep,
			once("same key", "the second caller with the key of the first", func(t *trial) *message { return t.op(0).with(t.s.OtherHeader).message() }),
		),
		run: func(t *trial) finding {
			if a := t.send("stranger"); !a.ok() {
				return badSetup("a new operation of the second caller was answered %s", a)
			}
			first, second := t.send("first"), t.send("same key")
			switch {
			case !first.ok():
				return notDone(first)
			case second.ok() && t.isReplayOf(second, first):
				return fails("the second caller got the answer of the first")
			case second.ok():
				return hold("each caller has keys of its own")
			}
			return hold("refused: %s", second)
		},
	},
	{
		id: "scope/authorised", clause: contract, severity: critical, needs: []string{"replay/effect"},
		says:    "A stored answer is given only to a caller that is authorised now.",
		missing: needCaller,
		plan: fixed(
			once("anonymous", "a new operation without credentials", anonymous(1)),
			firstStep,
			once("retry", "the first request again, without credentials", anonymous(0)),
		),
		run: func(t *trial) finding {
			if a := t.send("anonymous"); a.ok() {
				return untested("the API serves requests without these credentials")
			}
			first, retry := t.send("first"), t.send("retry")
			switch {
			case !first.ok():
				return notDone(first)
			case retry.ok() || t.replayed(retry) || retry.same(first):
				return fails("a request without credentials got the stored answer")
			}
			return hold("refused: %s", retry)
		},
	},
	{
		id: "scope/refusal-kept", clause: contract, severity: major, needs: []string{"base/answer"},
		says:    "A refusal for want of credentials is not stored: the retry with credentials runs.",
		missing: needCaller,
		plan:    fixed(once("anonymous", "a new operation without credentials", anonymous(0)), once("retry", "the same with credentials", plain)),
		run: func(t *trial) finding {
			if a := t.send("anonymous"); a.ok() {
				return untested("the API serves requests without these credentials")
			}
			if retry := t.send("retry"); !retry.ok() {
				return fails("after a refusal for want of credentials, the request with credentials was answered %s", retry)
			}
			return hold("the retry with credentials ran")
		},
	},
}

func needNumber(s *settings) string {
	if s.body == nil || s.body.leaf('0') == nil {
		return "the body is no JSON document with a number in it"
	}
	return needOther(s)
}

func needJSON(s *settings) string {
	if s.body == nil {
		return "the body is no JSON document"
	}
	return needOther(s)
}

// rewritten returns a check that the same content in other bytes is a retry.
func rewritten(id, says, what string, missing func(*settings) string, body func(n *node) []byte) check {
	return check{
		id: id, clause: "IETF draft §2.4; ACP §6", severity: minor, needs: []string{"mismatch/refused"}, says: says, missing: missing,
		plan: fixed(firstStep, once("rewritten", what, func(t *trial) *message { return t.op(0).written(body(t.s.body)).message() })),
		run: func(t *trial) finding {
			first, again := t.send("first"), t.send("rewritten")
			switch {
			case !first.ok():
				return notDone(first)
			case again.ok() && t.isReplayOf(again, first):
				return hold("it is the same request")
			case again.ok():
				return fails("it ran again")
			}
			return fails("it was refused as a different request: %s", again)
		},
	}
}

var fingerprintChecks = []check{
	rewritten("fingerprint/order", "A retry whose JSON has its members in another order, and other spaces, is the same request.",
		"the same members in the opposite order", needJSON, func(n *node) []byte { return n.bytes(writing{reversed: true}) }),
	rewritten("fingerprint/escapes", "A retry whose JSON has characters written as escapes is the same request.",
		"the same strings with escapes", func(s *settings) string {
			if s.body == nil || s.body.leaf('"') == nil {
				return "the body is no JSON document with a string in it"
			}
			return needOther(s)
		}, func(n *node) []byte { return n.bytes(writing{escaped: true}) }),
	rewritten("fingerprint/numbers", "A retry whose JSON has a number in another spelling, as 1.0 for 1, is the same request.",
		"the same number with .0", func(s *settings) string {
			if s.body != nil && s.body.respelled() == nil {
				return "the first number of the body cannot be written otherwise"
			}
			return needNumber(s)
		}, func(n *node) []byte { return n.respelled() }),
	{
		id: "fingerprint/large-numbers", clause: "IETF draft §2.4", severity: critical, needs: []string{"mismatch/refused"},
		says:    "Two numbers that a 64-bit float cannot tell apart are two different requests.",
		missing: needNumber,
		plan: fixed(
			once("first", "a new operation with the number 9007199254740993", func(t *trial) *message {
				return t.op(0).written(t.s.body.withNumber("9007199254740993")).message()
			}),
			once("other", "the same key with the number 9007199254740992", func(t *trial) *message {
				return t.op(0).written(t.s.body.withNumber("9007199254740992")).message()
			}),
		),
		run: func(t *trial) finding {
			first := t.send("first")
			if !first.ok() {
				return untested("the API does not take the number 9007199254740993: %s", first)
			}
			if other := t.send("other"); other.ok() {
				return fails("9007199254740992 under the key of 9007199254740993 was answered %s", other)
			}
			return hold("they are told apart")
		},
	},
}
