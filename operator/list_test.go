package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Pages neither lose nor repeat, whatever is left out of them.
func TestListPages(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil)
		const n = 90
		for i := range n {
			r := in(retrysafe.StateUnknown, key(i))
			r.Inquiry.Dead = i%3 == 0
			if i%2 == 0 {
				r.Scope = "acct_2"
			}
			if i%5 == 0 {
				r.Term = 0
			}
			put(t, s, r)
		}
		put(t, s, in(retrysafe.StateCompleted, "answered"))
		_, err := d.Redrive(t.Context(), operator.Action{By: anna, Why: "why", Ref: retrysafe.Ref{Scope: "acct_1", Key: "none"}, Revision: 1})
		if !errors.Is(err, retrysafe.ErrNotFound) {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			f    operator.Filter
			want int
		}{
			"all":             {operator.Filter{}, n + 1},
			"with our own":    {operator.Filter{System: true}, n + 2},
			"a state":         {operator.Filter{States: []retrysafe.State{retrysafe.StateCompleted}}, 1},
			"dead":            {operator.Filter{Dead: true}, n / 3},
			"dead, completed": {operator.Filter{Dead: true, States: []retrysafe.State{retrysafe.StateCompleted}}, 0},
			"a scope":         {operator.Filter{Scope: "acct_2"}, n / 2},
			"dead in a scope": {operator.Filter{Scope: "acct_2", Dead: true}, n / 6},
			"due":             {operator.Filter{Due: true}, n / 5},
		} {
			for _, limit := range []int{0, 7} {
				c.f.Limit, c.f.After = limit, retrysafe.Ref{}
				found := map[retrysafe.Ref]bool{}
				for more := true; more; {
					page, err := d.List(t.Context(), c.f)
					must(t, err)
					if limit > 0 && len(page.Records) > limit {
						t.Errorf("%s: %d records on a page", name, len(page.Records))
					}
					for _, r := range page.Records {
						if found[r.Ref] {
							t.Errorf("%s: %q is on two pages", name, r.Ref)
						}
						found[r.Ref] = true
					}
					c.f.After, more = page.Next, page.More
				}
				if len(found) != c.want {
					t.Errorf("%s, pages of %d: %d records, want %d", name, limit, len(found), c.want)
				}
			}
		}
	})
}

// Records that cannot be read are listed: they are stuck, and an operator has to know.
func TestListShowsWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := sqlite(t, t.TempDir()+"/keys.db")
	d := newDesk(t, s, nil)
	r := put(t, s, in(retrysafe.StateUnknown, "k"))
	_, err := s.DB().ExecContext(t.Context(), `UPDATE retrysafe_keys SET rec = substr(rec, 1, 20)`)
	must(t, err)
	page, err := d.List(t.Context(), operator.Filter{})
	must(t, err)
	if len(page.Records) != 1 || page.Records[0].Version != 0 {
		t.Errorf("%+v", page)
	}
	if _, err := d.Show(t.Context(), r.Ref); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Error(err)
	}
	if _, err := d.Show(t.Context(), retrysafe.Ref{Scope: "acct_1", Key: "none"}); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Error(err)
	}
}

// The audit is newest first, with every filter.
func TestAuditIsNewestFirst(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := memstore.New(&memstore.Options{Now: clock.Now})
	d := newDesk(t, s, nil)
	began := clock.Now()
	for i := range 30 {
		clock.Advance(time.Minute)
		r := put(t, s, in(retrysafe.StateUnknown, key(i)))
		a := seen(r)
		if i%3 == 0 {
			a.By = "bela"
		}
		do := d.Release
		if i%2 == 0 {
			do = d.Redrive
		}
		_, err := do(t.Context(), a)
		must(t, err)
	}
	minute := func(i int) time.Time { return began.Add(time.Duration(i) * time.Minute) }
	for name, c := range map[string]struct {
		f           operator.AuditFilter
		want, first int
	}{
		"all":       {operator.AuditFilter{}, 30, 29},
		"limit":     {operator.AuditFilter{Limit: 4}, 4, 29},
		"by":        {operator.AuditFilter{By: "bela"}, 10, 27},
		"verb":      {operator.AuditFilter{Verb: "redrive"}, 15, 28},
		"record":    {operator.AuditFilter{Ref: retrysafe.Ref{Scope: "acct_1", Key: key(5)}}, 1, 5},
		"since":     {operator.AuditFilter{Since: minute(21)}, 10, 29},
		"before":    {operator.AuditFilter{Before: minute(21)}, 20, 19},
		"next page": {operator.AuditFilter{Before: minute(21), Limit: 3}, 3, 19},
	} {
		got := audited(t, d, c.f)
		if len(got) != c.want || got[0].Ref.Key != key(c.first) {
			t.Errorf("%s: %d entries from %s, want %d from %s", name, len(got), got[0].Ref.Key, c.want, key(c.first))
		}
		if !slices.IsSortedFunc(got, func(a, b operator.Entry) int { return b.At.Compare(a.At) }) {
			t.Errorf("%s: not the newest first", name)
		}
	}
}

// An audit of several pages has each entry once.
func TestAuditOfSeveralPages(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	const many = 1200
	for i := range many {
		w := in(retrysafe.StateCompleted, key(i))
		w.Scope = retrysafe.SystemScope("operator")
		put(t, s, w)
	}
	all := map[string]bool{}
	found := audited(t, newDesk(t, s, nil), operator.AuditFilter{Limit: many})
	for _, e := range found {
		all[e.ID] = true
	}
	if want := min(many, retrysafe.MaxList); len(found) != want || len(all) != want {
		t.Errorf("%d entries of %d actions, want %d", len(found), len(all), want)
	}
}

// The pages of the audit, read one after the other, have each entry once, however many were stored in one
// moment: a page ends between two moments.
func TestPagesOfTheAuditPartNoMoment(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := memstore.New(&memstore.Options{Now: clock.Now})
	d := newDesk(t, s, nil)
	const together, moments = 7, 30
	for i := range together * moments {
		if i%together == 0 {
			clock.Advance(time.Second)
		}
		w := in(retrysafe.StateCompleted, key(i))
		w.Scope = retrysafe.SystemScope("operator")
		put(t, s, w)
	}
	all := map[string]int{}
	for f := (operator.AuditFilter{Limit: 10}); ; {
		page := audited(t, d, f)
		for _, e := range page {
			all[e.ID]++
		}
		if len(page) == 0 {
			break
		}
		if n := len(page); n != 2*together {
			t.Fatalf("a page for at least %d has %d entries, want %d", f.Limit, n, 2*together)
		}
		f.Before = page[len(page)-1].At
	}
	for i := range together * moments {
		if n := all[key(i)]; n != 1 {
			t.Errorf("%s is there %d times", key(i), n)
		}
	}
}

// The audit is kept for its retention, and then goes as answers do.
func TestAuditIsKept(t *testing.T) {
	t.Parallel()
	for retention, want := range map[time.Duration]time.Duration{0: 365 * 24 * time.Hour, time.Hour: time.Hour} {
		clock := newClock()
		s := memstore.New(&memstore.Options{Now: clock.Now})
		d := newDesk(t, s, &operator.Options{Retention: retention})
		_, err := d.Redrive(t.Context(), seen(put(t, s, in(retrysafe.StateUnknown, "k"))))
		must(t, err)
		for _, step := range []time.Duration{want - time.Second, time.Second} {
			clock.Advance(step)
			_, err = s.Purge(t.Context(), 100)
			must(t, err)
			if kept := len(audited(t, d, operator.AuditFilter{})) == 1; kept != (step != time.Second) {
				t.Errorf("retention %v, after %v more: kept %v", retention, step, kept)
			}
		}
	}
}

// An entry survives its JSON, also one whose key is no text.
func TestEntryInJSON(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil)
	w := in(retrysafe.StateUnknown, "\xff\x00key")
	w.Scope = "sc\xfeope"
	r := put(t, s, w)
	e, err := d.Release(t.Context(), seen(r))
	must(t, err)
	if e.Ref != r.Ref {
		t.Errorf("the entry is about %q", e.Ref)
	}
	if all := audited(t, d, operator.AuditFilter{Ref: r.Ref}); len(all) != 1 {
		t.Errorf("%d entries about it", len(all))
	}
	b, err := json.Marshal(e)
	must(t, err)
	var back operator.Entry
	must(t, json.Unmarshal(b, &back))
	if !back.At.Equal(e.At) {
		t.Error(back.At, e.At)
	}
	back.At = e.At
	if !reflect.DeepEqual(back, e) {
		t.Errorf("%s became %+v, was %+v", b, back, e)
	}
}

// slowLists is a store whose lists take a while.
type slowLists struct {
	retrysafe.Store
	each time.Duration
}

func (s slowLists) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	select {
	case <-time.After(s.each):
		return s.Store.List(ctx, q)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A list whose time is nearly over returns what it has found, and where to go on.
func TestListEndsBeforeItsTimeIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		for i := range 3000 {
			operation := "POST /payments"
			if i%100 == 0 {
				operation = "POST /refunds"
			}
			if _, err := store.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
				Ref: retrysafe.Ref{Scope: "tenant", Key: fmt.Sprint("key-", i)}, Operation: operation, State: retrysafe.StateRetryable,
				Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{byte(i), byte(i >> 8), 1}, Attempt: 1, Retain: time.Hour,
			}}); err != nil {
				t.Fatal(err)
			}
		}
		service, err := operator.New(slowLists{store, 40 * time.Millisecond}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found, pages := 0, 1
		for f := (operator.Filter{Operation: "POST /refunds", Limit: 50}); ; pages++ {
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			page, err := service.List(ctx, f)
			cancel()
			if err != nil {
				t.Fatalf("page %d: %v", pages, err)
			}
			found += len(page.Records)
			if f.After = page.Next; !page.More {
				break
			}
		}
		if found != 30 || pages < 2 {
			t.Errorf("%d records were listed on %d pages, want 30 on several", found, pages)
		}
	})
}

// deafStore is a store that cannot list.
type deafStore struct{ retrysafe.Store }

func (deafStore) List(context.Context, retrysafe.Query) ([]retrysafe.Record, error) {
	return nil, errLost
}

// A list that cannot be read is an error, never a short list.
func TestListThatFailsIsNotEmpty(t *testing.T) {
	t.Parallel()
	d := newDesk(t, deafStore{memstore.New(nil)}, nil)
	for name, look := range map[string]func() error{
		"Audit":  func() error { _, err := d.Audit(t.Context(), operator.AuditFilter{}); return err },
		"List":   func() error { _, err := d.List(t.Context(), operator.Filter{}); return err },
		"Groups": func() error { _, err := d.Groups(t.Context(), operator.Filter{}); return err },
		"Select": func() error { _, err := d.Select(t.Context(), release500()); return err },
		"Survey": func() error { _, err := d.Survey(t.Context(), operator.Suspects{}); return err },
	} {
		if err := look(); !errors.Is(err, errLost) {
			t.Errorf("%s: %v, want the store's error", name, err)
		}
	}
}
