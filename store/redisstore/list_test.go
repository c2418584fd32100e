package redisstore_test

import (
	"testing"

	"github.com/retrysafe/retrysafe"
)

// A damaged record is listed among those of its state, so that an operator finds it, and not
// among those of others, whose callers would act on it.
func TestDamagedRecordIsListedByItsState(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	rec, err := s.Create(t.Context(), newWrite("key"))
	must(t, err)
	_, err = s.Swap(t.Context(), complete(rec, "paid"))
	must(t, err)
	must(t, damage(t, s, rec.Ref, "t"))
	for state, want := range map[retrysafe.State]int{retrysafe.StateCompleted: 1, retrysafe.StateRetryable: 0} {
		list, err := s.List(t.Context(), retrysafe.Query{States: []retrysafe.State{state}})
		if err != nil || len(list) != want {
			t.Errorf("List of state %v has %d records, want %d: %v", state, len(list), want, err)
		}
	}
}
