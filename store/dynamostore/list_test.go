package dynamostore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// A table may have more partitions of its index than are searched at a time. A list of what is
// in flight has all records, each once, whatever its pages are.
func TestListSearchesAllPartitions(t *testing.T) {
	t.Parallel()
	s, err := dynamostore.Open(t.Context(), newClient(t, newFake(t).URL), newTable(), &dynamostore.Options{Shards: 20})
	must(t, err)
	const keys = 60
	for n := range keys {
		must(t, second(s.Create(t.Context(), fresh(fmt.Sprint("k", n)))))
	}
	for _, limit := range []int{7, 100} {
		q := retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress}, Limit: limit}
		seen := map[retrysafe.Ref]bool{}
		for {
			list, err := s.List(t.Context(), q)
			must(t, err)
			for _, r := range list {
				if seen[r.Ref] {
					t.Fatalf("pages of %d: %v is listed twice", limit, r.Ref)
				}
				seen[r.Ref] = true
			}
			if len(list) < limit {
				break
			}
			q.After = list[len(list)-1].Ref
		}
		if len(seen) != keys {
			t.Errorf("pages of %d: %d of %d records are listed", limit, len(seen), keys)
		}
	}
}

// A list of states of which some are final reads the table, and has those states alone.
func TestListOfFinalStates(t *testing.T) {
	t.Parallel()
	for _, url := range []string{newFake(t).URL, sharedDynalite(t)} {
		s := open(t, newClient(t, url), newTable())
		for _, key := range []string{"completed", "unknown", "in flight"} {
			rec, err := s.Create(t.Context(), fresh(key))
			must(t, err)
			w := done(rec, time.Hour)
			switch key {
			case "unknown":
				w.State, w.Result = retrysafe.StateUnknown, nil
			case "in flight":
				continue
			}
			must(t, second(s.Swap(t.Context(), w)))
		}
		list, err := s.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateUnknown}})
		if err != nil || len(list) != 2 || list[0].Key == "in flight" || list[1].Key == "in flight" {
			t.Errorf("List = %v, %v, want what is completed or unknown", list, err)
		}
	}
}

// A list that could not be read is an error: a list that is short would be believed.
func TestListThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := open(t, newClient(t, fake.URL), newTable())
	s.SetLease(time.Hour) // a request that renews it would take the failure of the list
	must(t, second(s.Create(t.Context(), fresh("k"))))
	for name, q := range map[string]retrysafe.Query{"all": {}, "in flight": {States: []retrysafe.State{retrysafe.StateInProgress}}} {
		fake.FailNext(400, false, "AccessDeniedException")
		if list, err := s.List(t.Context(), q); err == nil {
			t.Errorf("List of what is %s = %d records, and no error", name, len(list))
		}
	}
}
