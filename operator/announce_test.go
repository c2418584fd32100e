package operator_test

import (
	"context"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Caches on other nodes are told of each change of an answer that they may hold, and of
// nothing else: a repair of many unknown keys costs no cache anything.
func TestChangesOfAnswersAreAnnounced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state retrysafe.State
		told  bool
	}{
		"forget": {retrysafe.StateCompleted, true}, "erase": {retrysafe.StateCompleted, true},
		"release": {retrysafe.StateUnknown, false}, "resolve": {retrysafe.StateUnknown, false}, "redrive": {retrysafe.StateUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New(nil)
			d := newDesk(t, s, nil)
			r := put(t, s, in(c.state, "k"))
			_, before, err := s.Changes(t.Context(), "")
			must(t, err)
			_, err = verbs[name](d, t.Context(), seen(r))
			must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			told, _, err := s.Changes(ctx, before)
			if got := len(told) == 1 && told[0] == r.Ref; err != nil || got != c.told || len(told) > 1 {
				t.Errorf("told %q, %v; want it told: %t", told, err, c.told)
			}
		})
	}
}
