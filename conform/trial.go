package conform

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A trial is one run of a check: it makes the check's keys and requests, sends no more of
// them than the check has announced, and remembers all exchanges.
type trial struct {
	ctx   context.Context
	s     *settings
	w     *wire
	check *check
	steps []step
	probe bool // effects can be counted by the URL
	home  *answer
	alike bool
	hooks *receiver

	mu        sync.Mutex
	used      map[string]int
	overdrawn string
	log       []*answer
	weak      string // why the verdict is weaker than it could be
	before    int    // the count of all effects when the trial began
	probeErr  error
}

// key returns the n-th key of the trial. Keys of a run are recognised by their beginning.
func (t *trial) key(n int) string {
	name := fmt.Sprintf("conform-%s-%s-%d", t.s.RunID, strings.NewReplacer("/", "-", " ", "-", "{", "", "}", "").Replace(t.check.id), n)
	if !t.s.profile.UUID && len(name) <= 64 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	if !t.s.profile.UUID {
		return "conform-" + t.s.RunID + "-" + hex.EncodeToString(sum[:8])
	}
	copy(sum[:], []byte{0xc0, 0xf0, 0xc0, 0xf0})
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8: the issuer's own
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// A mold is a request that is being made.
type mold struct {
	t      *trial
	method string
	path   string
	header http.Header
	body   []byte
	keys   []string // values of the key's header, one line each
	unique string
}

// op begins a request of the operation under the n-th key, as it looks in every attempt.
func (t *trial) op(n int) *mold {
	r := &t.s.Request
	return &mold{t: t, method: r.Method, path: r.Path, header: r.Header.Clone(), body: r.Body, keys: []string{t.quoted(t.key(n))}, unique: uniqueText(t.key(n))}
}

// uniqueText returns what stands for {{unique}} in the operation of a key. The key is not
// part of it, so that it is recognised where only the payload can have led to.
func uniqueText(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "conform" + hex.EncodeToString(sum[:6])
}

// quoted returns a key as the profile has it on the wire.
func (t *trial) quoted(key string) string {
	if t.s.profile.Opaque {
		return key
	}
	return `"` + key + `"`
}

// other returns the mold with another body. Its unique text is another one too, because it
// is another operation.
func (m *mold) other(body []byte) *mold {
	m.body, m.unique = body, uniqueText(m.unique)
	return m
}

// written returns the mold with the same content in other bytes.
func (m *mold) written(body []byte) *mold {
	m.body = body
	return m
}

// with returns the mold with these headers in place of those of the same names.
func (m *mold) with(h http.Header) *mold {
	for name, values := range h {
		m.header[http.CanonicalHeaderKey(name)] = values
	}
	return m
}

// without returns the mold without the headers of these names.
func (m *mold) without(h http.Header) *mold {
	for name := range h {
		delete(m.header, http.CanonicalHeaderKey(name))
	}
	return m
}

// under returns the mold with these values of the key's header.
func (m *mold) under(values ...string) *mold {
	m.keys = values
	return m
}

// to returns the mold with another path.
func (m *mold) to(path string) *mold {
	m.path = path
	return m
}

// message returns the request.
func (m *mold) message() *message {
	fill := strings.NewReplacer("{{unique}}", m.unique)
	u := *m.t.s.base
	path, query, _ := strings.Cut(fill.Replace(m.path), "?")
	// The path is sent as it was given, escapes included.
	full := u.EscapedPath() + path
	u.RawQuery = query
	if unescaped, err := url.PathUnescape(full); err == nil {
		u.Path, u.RawPath = unescaped, full
	}
	if u.Path == "" {
		u.Path = "/"
	}
	out := &message{method: m.method, url: &u, body: bytes.ReplaceAll(m.body, []byte("{{unique}}"), []byte(m.unique)), hidden: m.t.s.OtherHeader}
	names := make([]string, 0, len(m.header))
	for name := range m.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range m.header[name] {
			out.lines = append(out.lines, [2]string{name, fill.Replace(v)})
		}
	}
	for _, v := range m.keys {
		out.lines = append(out.lines, [2]string{m.t.s.profile.Header, v})
	}
	return out
}

// take counts one sending of a step, and returns it if it was announced.
func (t *trial) take(name string) (step, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.steps, func(s step) bool { return s.name == name })
	if i < 0 || t.used[name] >= t.steps[i].times {
		t.overdrawn = name
		return step{}, false
	}
	t.used[name]++
	return t.steps[i], true
}

// left returns how often a step may still be sent.
func (t *trial) left(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.steps, func(s step) bool { return s.name == name })
	if i < 0 {
		return 0
	}
	return t.steps[i].times - t.used[name]
}

func (t *trial) note(a *answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, a)
}

// begin starts a step. What is not announced is not sent.
func (t *trial) begin(name string, ready <-chan struct{}) *sending {
	s, ok := t.take(name)
	if !ok {
		return unsent(&answer{step: name, sent: &message{url: t.s.base}, err: fmt.Errorf("the step %q is not announced", name)})
	}
	m := s.make(t)
	if ready == nil {
		if err := t.w.pace(t.ctx); err != nil {
			return unsent(&answer{step: name, sent: m, err: err})
		}
	}
	out := t.w.start(t.ctx, m, ready)
	out.answer.step = name
	t.note(out.answer)
	return out
}

// send carries out a step.
func (t *trial) send(name string) *answer { return t.begin(name, nil).wait() }

// race sends a step n times at once, on connections that are open before the first byte
// is sent.
func (t *trial) race(name string, n int) (answers []*answer) {
	ready := make(chan struct{})
	var all []*sending
	for range n {
		if t.w.pace(t.ctx) == nil {
			all = append(all, t.begin(name, ready))
		}
	}
	for _, s := range all {
		<-s.connected
	}
	close(ready)
	for _, s := range all {
		answers = append(answers, s.wait())
	}
	return answers
}

// flight sends a step, and another one while the first is in flight. Which of them the API
// sees first does not matter to a check. If the first one has its answer before the second
// is sent, they did not meet.
func (t *trial) flight(first, second string) (a, b *answer, met bool) {
	one := t.begin(first, nil)
	<-one.written
	_ = sleep(t.ctx, t.pause())
	met = !one.isDone()
	two := t.begin(second, nil)
	return one.wait(), two.wait(), met
}

// tooFast is the finding for requests that did not meet.
func tooFast() finding {
	return untested("the first request was answered before the second was sent; the API has to be slower")
}

// pause is how long a request is given to reach the handler.
func (t *trial) pause() time.Duration { return min(t.s.Interval, 250*time.Millisecond) }

// await repeats a step until its request is no longer in flight.
func (t *trial) await(name string) *answer { return t.repeat(name, t.pending) }

// awaitUp repeats a step until its request is no longer in flight and the API works again.
func (t *trial) awaitUp(name string) *answer {
	return t.repeat(name, func(a *answer) bool { return a.err != nil || a.status >= 500 || t.pending(a) })
}

func (t *trial) repeat(name string, while func(*answer) bool) *answer {
	for {
		a := t.send(name)
		if !while(a) || t.left(name) == 0 {
			return a
		}
		if sleep(t.ctx, t.s.Interval) != nil {
			return a
		}
	}
}

// polls is how often a step is repeated at most that waits for an answer.
func (s *settings) polls() int { return int(s.Patience/s.Interval) + 2 }

// pending reports whether an answer says that the request is in flight.
func (t *trial) pending(a *answer) bool {
	if a.err != nil {
		return false
	}
	if a.status == http.StatusAccepted && t.home != nil && t.home.status != http.StatusAccepted {
		return true
	}
	return slices.Contains(t.s.profile.InFlight, a.status) && !t.unknown(a)
}

// unknown reports whether an answer says that the outcome of the first request is unknown.
func (t *trial) unknown(a *answer) bool {
	return a.err == nil && slices.Contains(t.s.profile.InFlight, a.status) && t.s.unknown.Match(a.body)
}

// replayed reports whether an answer is marked as a replay.
func (t *trial) replayed(a *answer) bool {
	return a.err == nil && t.s.profile.Marker != "" && strings.EqualFold(a.header.Get(t.s.profile.Marker), "true")
}

// refusal reports whether the API has refused a request with one of these statuses.
func refusal(a *answer, statuses []int) bool {
	return a.err == nil && slices.Contains(statuses, a.status)
}

func statuses(all []int) string {
	var words []string
	for _, s := range all {
		words = append(words, strconv.Itoa(s))
	}
	return strings.Join(words, " or ")
}
