package operator_test

import (
	"errors"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A look at the contents of a record is in the audit, and changes nothing. Its ID shows no
// other revision.
func TestRevealIsAudited(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), memstore.New(nil)
	d := newDesk(t, s, nil)
	w := full(retrysafe.StateCompleted, "k")
	r, err := s.Create(ctx, w)
	must(t, err)
	a := operator.Action{ID: "look-1", By: "anna", Why: "the client asks", Ref: r.Ref, Revision: r.Revision}
	for _, replayed := range []bool{false, true} {
		got, e, err := d.Reveal(ctx, a)
		must(t, err)
		if string(got.Result.Body) != "body of "+secret || string(got.Request) != "request of "+secret {
			t.Errorf("got %q and %q, want the contents", got.Result.Body, got.Request)
		}
		if e.Verb != "reveal" || e.By != "anna" || e.Outcome != operator.StatusDone || e.Replayed != replayed || e.KeyHash != retrysafe.HashKey("k") || e.Seen != r.Revision {
			t.Errorf("got %+v", e)
		}
	}
	now, err := d.Show(ctx, r.Ref)
	must(t, err)
	if now.Revision != r.Revision {
		t.Errorf("the record is at revision %d, want %d as before", now.Revision, r.Revision)
	}
	one, err := d.Audit(ctx, operator.AuditFilter{ID: "look-1"})
	must(t, err)
	all, err := d.Audit(ctx, operator.AuditFilter{Verb: "reveal"})
	must(t, err)
	if len(one) != 1 || one[0].Why != "the client asks" || len(all) != 1 {
		t.Errorf("got %+v by ID and %d entries in all, want the one", one, len(all))
	}

	_, err = d.Forget(ctx, operator.Action{By: "bert", Why: "wrong", Ref: r.Ref, Revision: r.Revision})
	must(t, err)
	if got, _, err := d.Reveal(ctx, a); !errors.Is(err, operator.ErrStale) || got.Result != nil || got.Request != nil {
		t.Errorf("under its old ID a changed record gives %v, want it refused as stale", err)
	}
	a.ID = "look-2"
	if _, _, err := d.Reveal(ctx, a); !errors.Is(err, operator.ErrStale) {
		t.Errorf("at an old revision: got %v, want it refused as stale", err)
	}
	a.ID, a.Ref.Key = "look-3", "other"
	if _, _, err := d.Reveal(ctx, a); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("of a key that is not there: got %v", err)
	}
	if none, err := d.Audit(ctx, operator.AuditFilter{ID: "look-9"}); err != nil || len(none) != 0 {
		t.Errorf("an ID that no action has: got %v, %v", none, err)
	}
}
