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
