package tiered

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Two keys that have one hash share a place, and never an answer.
func TestOneHashIsNotOneKey(t *testing.T) {
	t.Parallel()
	s := of(New(memstore.New(nil), nil))
	at := func(scope string) place {
		return place{ref: retrysafe.Ref{Scope: scope, Key: "k"}, hash: 7, sh: &s.shards[7]}
	}
	one, two := at("acct_1"), at("acct_2")
	ask := func(at place) *entry {
		now := s.now()
		e, ticket := at.look(now, true)
		if e == nil {
			got := retrysafe.Record{
				Ref: at.ref, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Result: &retrysafe.Result{},
				Revision: 1, Deadline: time.Unix(60, 0), ReadAt: time.Unix(0, 0),
			}
			s.learn(at, ticket, now, &got, nil)
		}
		return e
	}
	for i, step := range []struct {
		at  place
		hit bool
	}{{one, false}, {one, true}, {two, false}, {two, true}, {one, false}, {one, true}} {
		if e := ask(step.at); (e != nil) != step.hit || e != nil && e.rec.Ref != step.at.ref {
			t.Errorf("step %d: got %v for %q", i, e, step.at.ref)
		}
		if err := s.shards[7].audit(); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	two.forget()
	if ask(one) == nil {
		t.Error("forgetting one key has dropped the other")
	}
}
