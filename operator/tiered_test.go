package operator_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// No answer that an operator took away is given by the cache of this node.
func TestCacheOfThisNodeForgetsToo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"forget", "erase"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache := tiered.New(memstore.New(nil), &tiered.Options{MaxAge: time.Hour})
			d, e := newDesk(t, cache, nil), newEngine(t, cache, retrysafe.Policy{})
			c := callOf(in(retrysafe.StateInProgress, "k").Record)
			_, _, err := asks(t, e, c, "first")
			must(t, err)
			if out, _, err := asks(t, e, c, "second"); err != nil || !out.Replayed || cache.Stats().Hits == 0 {
				t.Fatalf("it is not cached: %+v, %v", out, err)
			}
			r, err := d.Show(t.Context(), c.Ref)
			must(t, err)
			_, err = verbs[name](d, t.Context(), seen(r))
			must(t, err)
			for range 2 {
				out, ran, err := asks(t, e, c, "anew")
				must(t, err)
				switch {
				case name == "forget" && string(out.Body) != "anew":
					t.Errorf("got %q", out.Body)
				case name == "erase" && (ran || !out.Omitted || len(out.Body) > 0):
					t.Errorf("got %+v, ran %v", out, ran)
				}
			}
		})
	}
}

// What another node did is seen before anything is done about it, however fresh
// the cache takes itself to be.
func TestDeskLooksPastTheCache(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	here := tiered.New(below, &tiered.Options{MaxAge: time.Hour})
	e := newEngine(t, here, retrysafe.Policy{})
	c := callOf(in(retrysafe.StateInProgress, "k").Record)
	_, _, err := asks(t, e, c, "first")
	must(t, err)
	stale, err := here.Load(t.Context(), c.Ref)
	must(t, err)
	_, err = newDesk(t, below, nil).Erase(t.Context(), seen(stale)) // on another node
	must(t, err)

	d := newDesk(t, here, nil)
	r, err := d.Show(t.Context(), c.Ref)
	if err != nil || !r.Result.Omitted {
		t.Errorf("%+v, %v", r, err)
	}
	entry, err := d.Forget(t.Context(), seen(stale))
	refused(t, d, entry, err, operator.ErrStale)
	_, err = d.Forget(t.Context(), seen(r))
	must(t, err)
	if out, ran, err := asks(t, e, c, "anew"); err != nil || !ran || string(out.Body) != "anew" {
		t.Errorf("%+v, %v, ran %v", out, err, ran)
	}
}

// Over sealed records all is as it is without.
func TestDeskOverSealedRecords(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	keys, err := sealed.NewKeyring(bytes.Repeat([]byte("i"), sealed.KeySize), 1, map[uint32][]byte{1: bytes.Repeat([]byte("1"), sealed.KeySize)})
	must(t, err)
	s, err := sealed.New(below, keys)
	must(t, err)
	d := newDesk(t, s, nil)
	r := put(t, s, full(retrysafe.StateCompleted, "k"))
	entry, err := d.Erase(t.Context(), seen(r))
	must(t, err)
	now := load(t, s, r.Ref)
	if !now.Result.Omitted || now.Request != nil || len(now.Checkpoint.Data) > 0 || now.Reason != "" {
		t.Errorf("%+v", now)
	}
	lastNote(t, now, anna, entry.ID)
	if all := audited(t, d, operator.AuditFilter{Ref: r.Ref}); len(all) != 1 || all[0].Why != "looked it up" {
		t.Errorf("%+v", all)
	}
	page, err := d.List(t.Context(), operator.Filter{})
	if err != nil || len(page.Records) != 1 || page.Records[0].Ref != r.Ref {
		t.Errorf("%+v, %v", page, err)
	}
	raw, err := below.List(t.Context(), retrysafe.Query{})
	must(t, err)
	for i := range raw {
		if raw[i].IsSystem() {
			t.Error("the store below sees that a key is an operator's")
		}
	}
}
