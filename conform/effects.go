package conform

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	weakAnswers = "effects were not counted, only inferred from the answers: give an effects URL"
	weakLost    = "an answer was lost on purpose, so its effect can only be counted by an effects URL"
	probeStep   = "probe"
)

// probeMessage returns the question how many effects the n-th key had.
func (t *trial) probeMessage(n int) *message {
	u, err := url.Parse(strings.ReplaceAll(t.s.Effects.URL, "{key}", url.QueryEscape(t.key(n))))
	if err != nil {
		u = t.s.probe
	}
	m := &message{method: http.MethodGet, url: u, hidden: t.s.OtherHeader}
	if u.Host == t.s.base.Host && u.Scheme == t.s.base.Scheme {
		for _, l := range t.op(n).message().lines {
			if !strings.EqualFold(l[0], t.s.profile.Header) && !strings.EqualFold(l[0], "Content-Type") {
				m.lines = append(m.lines, l)
			}
		}
	}
	return m
}

// read asks the effects URL.
func (t *trial) read(n int) (int, error) {
	if _, ok := t.take(probeStep); !ok {
		return 0, fmt.Errorf("the step %q is not announced", probeStep)
	}
	if err := t.w.pace(t.ctx); err != nil {
		return 0, err
	}
	s := t.w.start(t.ctx, t.probeMessage(n), nil)
	s.answer.step = probeStep
	t.note(s.answer)
	a := s.wait()
	if a.err != nil {
		return 0, fmt.Errorf("the effects URL: %w", a.err)
	}
	return t.s.Effects.count(a)
}

// count reads a number of effects from an answer of the effects URL.
func (e *Effects) count(a *answer) (int, error) {
	if a.status == http.StatusNotFound {
		return 0, nil // no effect, no list of them
	}
	if !a.ok() {
		return 0, fmt.Errorf("the effects URL was answered %s", a)
	}
	text := strings.TrimSpace(string(a.body))
	switch {
	case e.Header != "":
		text = strings.TrimSpace(a.header.Get(e.Header))
	case !isNumber(text):
		doc, err := parseNode(a.body)
		if err != nil {
			return 0, fmt.Errorf("the effects URL was answered with neither a number nor a JSON document")
		}
		found := doc.at(e.Pointer)
		switch {
		case found == nil || found.kind == 'w' && found.text == "null":
			return 0, nil
		case found.kind == '[':
			return len(found.members), nil
		}
		text = found.text
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("the effects URL was answered with %q, which is no number", text)
	}
	return n, nil
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// perKey reports whether the effects URL counts those of one key.
func (s *settings) perKey() bool { return strings.Contains(s.Effects.URL, "{key}") }

// baseline notes how many effects there were before the trial.
func (t *trial) baseline() {
	if t.probe && !t.s.perKey() {
		t.before, t.probeErr = t.read(0)
	}
}

// effects returns how many effects there were under the n-th key since the baseline. If
// they cannot be counted they are inferred from the answers, which are all answers under
// that key that arrived.
func (t *trial) effects(n int, answers ...*answer) int {
	if t.probe {
		count, err := t.read(n)
		if err != nil {
			t.probeErr = err
			return 0
		}
		return count - t.before
	}
	t.weak = weakAnswers
	if t.s.Effects.URL == "" && (t.s.Effects.Pointer != "" || t.s.Effects.Header != "") {
		t.weak = ""
		if t.check.blind {
			t.weak = weakLost
		}
	}
	var distinct []*answer
	for _, a := range answers {
		if a.ok() && !t.pending(a) && !slices.ContainsFunc(distinct, func(b *answer) bool { return t.s.Effects.sameEffect(a, b) }) {
			distinct = append(distinct, a)
		}
	}
	return len(distinct)
}

// sameEffect reports whether two answers are about one effect, as far as they say.
func (e *Effects) sameEffect(a, b *answer) bool {
	x, y := e.name(a), e.name(b)
	if x == "" && y == "" {
		return sameDocument(a.body, b.body)
	}
	return x == y
}

// name returns what names the effect in an answer, or nothing.
func (e *Effects) name(a *answer) string {
	switch {
	case e.URL != "":
		return ""
	case e.Header != "":
		return a.header.Get(e.Header)
	case e.Pointer != "":
		doc, err := parseNode(a.body)
		if err != nil {
			return ""
		}
		if found := doc.at(e.Pointer); found != nil {
			return found.text
		}
	}
	return ""
}
