package httpkey_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// steps notes what the guard asks of its store from now on.
func (b *bundle) steps() (taken func() []string) {
	var all []string
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		all = append(all, fmt.Sprint(s.Op, " of attempt ", s.Write.Attempt, ", ", s.Write.State))
		return faultstore.None
	})
	return func() []string { b.fault.Plan(nil); return all }
}

// TestW74_ForeignKeyIsAnAbsentKey: a call with another tenant's key takes the same
// steps at the store as a call with an absent key, in whatever state the foreign key
// is, and gets the same answer. `prove isolation` compares how long they take.
func TestW74_ForeignKeyIsAnAbsentKey(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*retrysafe.Write){
		"completed": func(r *retrysafe.Write) {
			r.State, r.Result = retrysafe.StateCompleted, &retrysafe.Result{Status: 201}
		},
		"in flight": func(*retrysafe.Write) {},
		"lapsed":    func(r *retrysafe.Write) { r.Term = 0 },
		"unknown":   func(r *retrysafe.Write) { r.State = retrysafe.StateUnknown },
		"retryable": func(r *retrysafe.Write) { r.State = retrysafe.StateRetryable },
		"newer":     func(r *retrysafe.Write) { r.Version++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.plant(t, change)
			before := b.state(t)
			mallory := with("X-Tenant", "mallory")
			try := func(k string) (*response, []string) {
				t.Helper()
				b.runs.Store(0) // it is in the answer
				taken := b.steps()
				got := b.post(t, k, `{"a":1}`, mallory)
				return got, taken()
			}
			foreign, way := try(key)
			absent, wayOfAbsent := try(other)
			if len(way) == 0 || !slices.Equal(way, wayOfAbsent) {
				t.Errorf("the steps for a foreign key are %q, for an absent one %q", way, wayOfAbsent)
			}
			for _, r := range []*response{foreign, absent} {
				r.ran(t, 1, false)
				r.header.Del("Idempotency-Expires") // each has its own time
			}
			if !maps.EqualFunc(foreign.header, absent.header, slices.Equal[[]string]) || foreign.body != absent.body {
				t.Errorf("the answers tell them apart:\n%v %s\n%v %s", foreign.header, foreign.body, absent.header, absent.body)
			}
			if after := b.state(t); after.Revision != before.Revision || after.State != before.State {
				t.Errorf("the owner's record has changed: %+v", after)
			}
		})
	}
}

// TestW75_PartsOfAScopeNeverRunTogether: tenant, principal, operation and key are
// cut in every way out of texts that hold separators; each cut is a key of its own,
// with an answer of its own.
func TestW75_PartsOfAScopeNeverRunTogether(t *testing.T) {
	t.Parallel()
	header := func(name string) func(*http.Request) (string, error) {
		return func(r *http.Request) (string, error) { return r.Header.Get(name), nil }
	}
	b := setup(t, func(c *config) { c.Bind, c.PerOperation = header("X-User"), true })
	type cut struct{ tenant, user, key string }
	var cuts []cut
	for _, text := range []string{"a:b:c", "a|b|c", "a/b/c", "a#b#c", "a.b.c", "abc-abc", "aopby", "11:1:1", `a\x1fb`, "a%1Fb"} {
		for i := 1; i < len(text)-1; i++ {
			for j := i + 1; j < len(text); j++ {
				cuts = append(cuts, cut{text[:i], text[i:j], text[j:]})
			}
		}
	}
	send := func(c cut) *response {
		return b.post(t, c.key, `{}`, with("X-Tenant", c.tenant), with("X-User", c.user))
	}
	answers := map[cut]*response{}
	for i, c := range cuts {
		if answers[c] == nil {
			answers[c] = send(c)
			answers[c].ran(t, len(answers), false)
		} else {
			t.Errorf("cut %d is there twice: %q", i, c)
		}
	}
	for c, first := range answers {
		send(c).same(t, first)
	}
	b.ranTimes(t, len(cuts))
}
