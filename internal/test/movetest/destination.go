package movetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// FillIsOneRuns tests that only the run that began last fills a store, from one source
// only, and that every step is refused meanwhile.
func FillIsOneRuns(t *testing.T, h Harness) {
	t.Helper()
	s := h.open(t)
	m := s.Mover()
	first, second := retrysafe.Owner{1}, retrysafe.Owner{2}
	if err := m.Import(t.Context(), first, nil, nil); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Import before Fill = %v", err)
	}
	must(t, m.Fill(t.Context(), first, run, "elsewhere"))
	must(t, m.Import(t.Context(), first, []retrysafe.Record{fresh("stale").Record}, nil))
	if err := m.Fill(t.Context(), second, retrysafe.Owner{9}, "another place"); !errors.Is(err, storemove.ErrFilling) {
		t.Errorf("another source: %v", err)
	}
	must(t, m.Fill(t.Context(), second, run, "elsewhere"))
	for name, err := range map[string]error{
		"Import": m.Import(t.Context(), first, nil, nil), "Filled": m.Filled(t.Context(), first), "Unfill": m.Unfill(t.Context(), first),
	} {
		if !errors.Is(err, storemove.ErrOvertaken) {
			t.Errorf("%s of the run before = %v", name, err)
		}
	}
	must(t, m.Import(t.Context(), second, []retrysafe.Record{fresh("new").Record, fresh("gone").Record}, nil))
	must(t, m.Import(t.Context(), second, nil, []retrysafe.Ref{fresh("gone").Ref}))
	if _, err := s.Create(t.Context(), fresh("too early")); !errors.Is(err, storemove.ErrFilling) {
		t.Errorf("Create = %v", err)
	}
	must(t, m.Filled(t.Context(), second))
	if err := m.Filled(t.Context(), second); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Filled again = %v", err)
	}
	list, err := s.List(t.Context(), retrysafe.Query{})
	if err != nil || strings.Join(names(list, nil), ", ") != "new" {
		t.Errorf("there is %q, %v", names(list, nil), err)
	}
	put(t, s, "after it")
}

// MovingOpensWhatIsClosed tests that only the option Moving opens a closed store, for a
// move that goes on. A step that writes is refused all the same.
func MovingOpensWhatIsClosed(t *testing.T, h Harness) {
	t.Helper()
	s := h.open(t)
	must(t, s.Mover().Fill(t.Context(), run, retrysafe.Owner{9}, "elsewhere"))
	r := fresh("k").Record
	r.Revision, r.CreatedAt, r.UpdatedAt = 5, time.UnixMicro(3).UTC(), time.UnixMicro(5).UTC()
	must(t, s.Mover().Import(t.Context(), run, []retrysafe.Record{r}, nil))
	if err := s.Mover().Import(t.Context(), retrysafe.Owner{8}, nil, nil); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Import of another run = %v", err)
	}
	if _, err := h.Open(t.Context(), false); !errors.Is(err, storemove.ErrFilling) {
		t.Errorf("Open = %v", err)
	}
	m, err := h.Open(t.Context(), true)
	must(t, err)
	switch got, err := m.Load(t.Context(), r.Ref); {
	case h.LoadsClosed && (err != nil || got.Revision != 5):
		t.Errorf("Load = %+v, %v", got, err)
	case !h.LoadsClosed && !errors.Is(err, storemove.ErrFilling):
		t.Errorf("Load = %v", err)
	}
	if _, err := m.Create(t.Context(), fresh("new")); !errors.Is(err, storemove.ErrFilling) {
		t.Errorf("Create = %v", err)
	}
	must(t, m.Mover().Filled(t.Context(), run))
	if err := m.Mover().Filled(t.Context(), run); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Filled again = %v", err)
	}
	must(t, second(s.Load(t.Context(), r.Ref)))
	put(t, s, "new")
}

// ImportKeepsRecords tests that a record is the same after it was imported, in every state and
// with all of its fields, also where an earlier version of it was imported before: by its new
// store's clock it has as long to go as it had, and it is found, counted and purged as any
// other record.
func ImportKeepsRecords(t *testing.T, h Harness) {
	t.Helper()
	s := h.open(t)
	m := s.Mover()
	for _, ref := range []retrysafe.Ref{deployment.Ref(), deployment.Probe()} { // a store with these has no records
		w := fresh("")
		w.Ref = ref
		must(t, second(s.Create(t.Context(), w)))
	}
	must(t, m.Fill(t.Context(), run, retrysafe.Owner{9}, "elsewhere"))
	read := time.Now().Add(-10 * time.Minute).Truncate(time.Microsecond).UTC()
	var all, earlier []retrysafe.Record
	for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
		for _, left := range []time.Duration{-time.Hour, 5 * time.Hour} {
			r := fresh(fmt.Sprint(state, left)).Record
			fill(&r)
			r.State = state
			r.UpdatedAt = read.Add(-time.Duration(len(all)+1) * time.Hour)
			r.Revision, r.CreatedAt, r.Deadline, r.ReadAt = r.UpdatedAt.UnixMicro(), r.UpdatedAt.Add(-24*time.Hour), read.Add(left), read
			if state != retrysafe.StateCompleted && state != retrysafe.StateUnknown { // which may be under review
				r.Result = nil
			}
			before := fresh(r.Key).Record // of another owner
			before.ReadAt, before.Revision, before.UpdatedAt = read, r.Revision-1, r.UpdatedAt.Add(-time.Microsecond)
			before.CreatedAt, before.Deadline = before.UpdatedAt, read.Add(20*time.Hour)
			all, earlier = append(all, r), append(earlier, before)
		}
	}
	must(t, m.Import(t.Context(), run, append(earlier, fresh("gone").Record), nil))
	must(t, m.Import(t.Context(), run, all, []retrysafe.Ref{fresh("gone").Ref}))
	must(t, m.Filled(t.Context(), run))

	var due, final []string
	for i := range all {
		want := all[i]
		got, err := s.Load(t.Context(), want.Ref)
		must(t, err)
		if was, left := want.Deadline.Sub(want.ReadAt), got.Deadline.Sub(got.ReadAt); left > was || left < was-5*time.Minute {
			t.Errorf("%s: what had %v to go has %v", want.Key, was, left)
		}
		if want.ReadAt, want.Deadline = got.ReadAt, got.Deadline; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, and was %+v", want.Key, got, want)
		}
		if got.Due() {
			due = append(due, want.Key)
			if got.State.Forgettable() {
				final = append(final, want.Key)
			}
		}
	}
	listed := func(what string, q retrysafe.Query, want []string) {
		t.Helper()
		q.Scope = "acct_1"
		list, err := s.List(t.Context(), q)
		slices.Sort(want)
		if got := names(list, nil); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s are %q, %v; want %q", what, got, err, want)
		}
	}
	listed("due", retrysafe.Query{Due: true}, due)
	listed("all", retrysafe.Query{}, names(all, nil))
	if c, ok := s.(retrysafe.Counter); ok {
		if n, err := c.Count(t.Context(), "acct_1"); n != len(all) || err != nil {
			t.Errorf("counted are %d, %v; want %d", n, err, len(all))
		}
	}
	if n, err := s.Purge(t.Context(), 100); n != len(final) || err != nil {
		t.Errorf("Purge = %d, %v; want %d", n, err, len(final))
	}
	listed("left", retrysafe.Query{}, slices.DeleteFunc(names(all, nil), func(key string) bool { return slices.Contains(final, key) }))
}
