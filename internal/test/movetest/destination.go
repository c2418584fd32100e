package movetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
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
