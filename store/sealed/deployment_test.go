package sealed_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// identity is the record of a deployment, as a gateway writes it below the seal.
func identity() retrysafe.Write {
	return retrysafe.Write{Term: 100 * 365 * 24 * time.Hour, Record: retrysafe.Record{
		Ref: deployment.Ref(), State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Owner: owner(9), Attempt: 1,
		Result: &retrysafe.Result{Status: 200, Body: []byte(`{"id":"x"}`)},
	}}
}

// The records of the deployment stand below the seal, readable without any secret. Above
// there is nothing of them: no list shows them, no page is short because of them, and the check
// of secrets goes by the others.
func TestDeploymentIsBelowTheSeal(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	create(t, below, identity())
	probe := identity()
	probe.Ref = deployment.Probe()
	create(t, below, probe)
	if err := sealed.Check(t.Context(), below, otherIndex(t)); err != nil {
		t.Errorf("the check of a store with nothing else: %v", err)
	}
	const many = 7
	for i := range many {
		create(t, s, full("tenant-a", fmt.Sprint("order-", i)))
	}
	if _, err := s.Load(t.Context(), deployment.Ref()); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("load through the seal: %v, want ErrNotFound", err)
	}
	for limit := 1; limit <= many+2; limit++ {
		q, seen := retrysafe.Query{Limit: limit}, 0
		for {
			page := list(t, s, q)
			if len(page) > limit {
				t.Errorf("a page of %d has %d records", limit, len(page))
			}
			for _, r := range page {
				if seen++; r.Scope != "tenant-a" {
					t.Errorf("pages of %d show %q", limit, r.Ref)
				}
			}
			if len(page) < limit {
				break
			}
			q.After = page[len(page)-1].Ref
		}
		if seen != many {
			t.Errorf("pages of %d show %d records, want %d", limit, seen, many)
		}
	}
	if err := sealed.Check(t.Context(), below, ring(t, 1, 1)); err != nil {
		t.Errorf("the check of the right secrets: %v", err)
	}
	if err := sealed.Check(t.Context(), below, otherIndex(t)); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("the check of other secrets: %v, want ErrUnreadable", err)
	}
}

// Through a seal the same Ref is another record, as for any Ref.
func TestDeploymentThroughTheSealIsAnotherRecord(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	s := over(t, below, ring(t, 1, 1))
	create(t, below, identity())
	above := identity()
	above.Result = &retrysafe.Result{Status: 200, Body: []byte("above")}
	create(t, s, above)
	if got := load(t, s, deployment.Ref()); string(got.Result.Body) != "above" {
		t.Errorf("above is %s", got.Result.Body)
	}
	if got := load(t, below, deployment.Ref()); string(got.Result.Body) != `{"id":"x"}` {
		t.Errorf("below is %s", got.Result.Body)
	}
}
