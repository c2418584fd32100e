package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// A caller asks one question after the other for a tenant, and knows what it must get:
// no other caller uses its keys for that tenant. If it gets anything else, that can
// only be because other tenants use the same keys.
type caller struct {
	*tenants
	*tenant
	transport transport
	keys      []string
	known     map[string]*keyState
	rand      *rand.Rand
	count     int
}

// A keyState is what a caller knows of one of its keys.
type keyState struct {
	is     keyStatus
	answer string
	runs   int
}

type keyStatus uint8

const (
	fresh    keyStatus = iota // never used
	finished                  // answered
	released                  // tried, and provably not done
	doubtful                  // tried, with an unknown outcome
	lost                      // the store did not answer, and the key is not used any more
)

// A transport is how a question is asked: by the engine or by HTTP. It calls run if the
// operation is to be done.
type transport func(c *caller, ctx context.Context, q *question) reply

// A question asks for an operation under a key.
type question struct {
	key string
	// other: it is another request than all before under this key.
	other bool
	// look: it only asks how the request stands.
	look bool
	// ending is how the operation is to end, if it is done.
	ending ending
	run    func() string
}

type ending uint8

const (
	succeed ending = iota
	// release: it provably does nothing.
	release
	// vanish: it may have done something.
	vanish
)

// A reply is what came of a question.
type reply struct {
	is     replyKind
	answer string
	// all is everything that the caller was shown.
	all string
}

type replyKind string

const (
	ran           replyKind = "ran"
	replayed      replyKind = "replayed"
	mismatch      replyKind = "another request"
	inFlight      replyKind = "in flight"
	uncertain     replyKind = "unknown outcome"
	absent        replyKind = "no such key"
	failed        replyKind = "failed"
	notIdentified replyKind = "not identified"
	noAnswer      replyKind = "no answer"
	unexpected    replyKind = "something else"
)

// ask draws a question, asks it, and looks at the reply.
func (c *caller) ask(ctx context.Context) {
	key := c.keys[c.rand.IntN(len(c.keys))]
	f := c.known[key]
	if f == nil {
		f = new(keyState)
		c.known[key] = f
	}
	if f.is == lost {
		return
	}
	q := &question{key: key, other: c.rand.IntN(8) == 0 && f.is != fresh, look: c.rand.IntN(5) == 0}
	if n := c.rand.IntN(20); n < 2 {
		q.ending = ending(1 + n)
	}
	nested := c.rand.IntN(10) == 0
	q.run = func() string {
		f.runs++
		c.count++
		if nested { // a retry that comes while the operation runs
			again := *q
			again.run = func() string { return "" }
			again.look = false
			c.expect(key, c.transport(c, ctx, &again), inFlight, "")
		}
		return fmt.Sprintf("%s: answer %d of %q under %q", c.token, c.count, c.name, key)
	}
	runs := f.runs
	got := c.transport(c, ctx, q)
	c.judge(q, f, &got, f.runs-runs)
}

// judge says what the caller must have got.
func (c *caller) judge(q *question, f *keyState, got *reply, runs int) {
	if got.is == noAnswer {
		c.unanswered.Add(1)
		f.is = lost
		return
	}
	want, answer, again := ran, got.answer, 0
	switch {
	case q.look && f.is == fresh:
		want = absent
	case q.look && f.is == finished:
		want, answer = replayed, f.answer
	case q.other && f.is != fresh:
		want = mismatch
	case f.is == finished:
		want, answer = replayed, f.answer
	case f.is == doubtful:
		want = uncertain
	case q.ending != succeed:
		want, again = failed, 1
	default:
		again = 1
	}
	if c.expect(q.key, *got, want, answer); runs != again {
		c.r.Violatef("S1", q.key, "caller %q sent a request, and the operation ran %d times instead of %d", c.name, runs, again)
	}
	switch {
	case want == ran:
		f.is, f.answer = finished, got.answer
	case want == failed && q.ending == release:
		f.is = released
	case want == failed:
		f.is = doubtful
	}
}

// expect compares a reply with what it must be.
func (c *caller) expect(key string, got reply, want replyKind, answer string) {
	if got.is == noAnswer {
		return
	}
	if other := c.leaked(got.all); other != nil {
		c.r.Violatef("S7", key, "caller %q got an answer of caller %q: %q", c.name, other.name, got.all)
	}
	if got.is != want {
		c.r.Violatef("S7", key, "caller %q must get: %s, as without other callers, and got: %s %q", c.name, want, got.is, got.all)
		return
	}
	if got.answer != answer && (want == ran || want == replayed) {
		c.r.Violatef("S2", key, "caller %q first got the answer %q, and now got %q", c.name, answer, got.answer)
	}
}
