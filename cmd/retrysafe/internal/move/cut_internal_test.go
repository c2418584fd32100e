package move

import (
	"context"
	"errors"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

var errFull, errLost = errors.New("the destination is full"), errors.New("the reply was lost")

// cuttingSource has two batches left at the cut, and then loses its reply if it is to.
type cuttingSource struct {
	storemove.Source
	loses bool
}

func (s cuttingSource) Retire(ctx context.Context, _ retrysafe.Owner, _ string, rest func(context.Context, []retrysafe.Record, []retrysafe.Ref) error) error {
	for range 2 {
		if err := rest(ctx, nil, nil); err != nil {
			return err
		}
	}
	if s.loses {
		return errLost
	}
	return nil
}

// fillingDestination has room for so many batches.
type fillingDestination struct {
	storemove.Destination
	room int
}

func (d *fillingDestination) Import(context.Context, retrysafe.Owner, []retrysafe.Record, []retrysafe.Ref) error {
	if d.room--; d.room < 0 {
		return errFull
	}
	return nil
}

// A cut whose last batch the destination refused was surely undone, whatever it took before
// that: the source serves on. Whether a cut that took all was undone cannot be known.
func TestCutIsUnsureOnlyOnceAllIsCopied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		room   int
		loses  bool
		want   error
		unsure bool
	}{
		"nothing taken":         {0, false, errFull, false},
		"one of two taken":      {1, false, errFull, false},
		"all taken, reply lost": {2, true, errLost, true},
		"all taken":             {2, false, nil, false},
	} {
		m := &move{source: cuttingSource{loses: c.loses}, destination: &fillingDestination{room: c.room}}
		if err := m.cut(t.Context()); !errors.Is(err, c.want) || errors.Is(err, ErrUnsure) != c.unsure {
			t.Errorf("%s: cut = %v", name, err)
		}
	}
}

// silentDestination does not say by which run it is filled.
type silentDestination struct{ storemove.Destination }

func (silentDestination) Filling(context.Context) (retrysafe.Owner, error) {
	return retrysafe.Owner{}, errLost
}

// retiredSource was retired by a run.
type retiredSource struct {
	storemove.Source
	by retrysafe.Owner
}

func (s retiredSource) Retired(context.Context) (retrysafe.Owner, error) { return s.by, nil }

// A destination that does not answer is named, in a dry run too. If the source was closed by
// an earlier run the error does not leave that open.
func TestSilentDestinationIsNamed(t *testing.T) {
	t.Parallel()
	m := &move{source: retiredSource{by: retrysafe.Owner{1}}, destination: silentDestination{}, to: someStore{}}
	for name, c := range map[string]struct {
		do      func(context.Context) error
		retired bool
	}{
		"a run":                      {m.do, true},
		"a dry run":                  {m.dryRun, true},
		"the beginning of a filling": {func(ctx context.Context) error { return m.fill(ctx, retrysafe.Owner{1}) }, false},
	} {
		if err := c.do(t.Context()); !errors.Is(err, errLost) || !errors.Is(err, ErrDestination) || errors.Is(err, ErrUnseen) != c.retired {
			t.Errorf("%s = %v", name, err)
		}
	}
}

// Pages of large records are small, whatever makes the records large, and never empty.
func TestPagesFitTheirRecords(t *testing.T) {
	t.Parallel()
	const large = 100 << 10
	for name, c := range map[string]struct {
		record      retrysafe.Record
		least, most int
	}{
		"small":       {retrysafe.Record{}, 10_000, pageBytes},
		"answers":     {retrysafe.Record{Result: &retrysafe.Result{Body: make([]byte, large)}}, 70, 82},
		"requests":    {retrysafe.Record{Request: make([]byte, large)}, 70, 82},
		"checkpoints": {retrysafe.Record{Checkpoint: retrysafe.Checkpoint{Data: make([]byte, large)}}, 70, 82},
		"very large":  {retrysafe.Record{Request: make([]byte, 2*pageBytes)}, 10, 10},
	} {
		if n := fit([]retrysafe.Record{c.record, c.record}); n < c.least || n > c.most {
			t.Errorf("%s: a page has %d records, want %d to %d", name, n, c.least, c.most)
		}
	}
}

type someStore struct{ retrysafe.Store }

func (someStore) Mover() storemove.Store { return nil }

func TestOptionsOfAMove(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts     *Options
		batch    int
		from, to string
	}{
		{nil, 2000, "another store", "another store"},
		{&Options{Batch: 7, From: "the\nattic"}, 7, `the\nattic`, "another store"},
		{&Options{Batch: retrysafe.MaxList + 1, To: "the\ncellar"}, retrysafe.MaxList, "another store", `the\ncellar`},
	} {
		m, err := newMove(someStore{}, someStore{}, c.opts)
		if err != nil || m.Batch != c.batch || m.From != c.from || m.To != c.to || m.run.IsZero() {
			t.Errorf("%+v: %+v, %v", c.opts, m, err)
		}
	}
	if m, err := newMove(someStore{}, someStore{}, &Options{Batch: -1}); err == nil {
		t.Errorf("a negative batch: %+v", m)
	}
	type keeps struct{ retrysafe.Store } // its records cannot be moved
	for _, c := range []struct {
		to     retrysafe.Store
		dryRun bool
		want   error
	}{
		{nil, true, nil}, {nil, false, ErrKind}, {keeps{}, true, ErrKind}, {keeps{}, false, ErrKind},
	} {
		if _, err := newMove(someStore{}, c.to, &Options{DryRun: c.dryRun}); !errors.Is(err, c.want) {
			t.Errorf("to %T, dry run %t: %v, want %v", c.to, c.dryRun, err, c.want)
		}
	}
}
