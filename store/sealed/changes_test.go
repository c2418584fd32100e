package sealed_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// feeding is a store whose changes a test makes up.
type feeding struct {
	retrysafe.Store
	changed []retrysafe.Ref
	feeds   error
	loads   error
}

func (s *feeding) Changes(_ context.Context, cursor string) ([]retrysafe.Ref, string, error) {
	if s.feeds != nil {
		return nil, "", s.feeds
	}
	return s.changed, cursor + "+", nil
}

func (s *feeding) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if s.loads != nil {
		return retrysafe.Record{}, s.loads
	}
	return s.Store.Load(ctx, ref)
}

// Changes come under their true names. One whose name cannot be known is a loss; one that
// cannot be read now is an error, and the reader comes again.
func TestChangesHaveTheirTrueNames(t *testing.T) {
	t.Parallel()
	below := &feeding{Store: memstore.New(nil)}
	s := over(t, below, ring(t, 1, 1))
	feed := s.(retrysafe.ChangeFeed)
	want := create(t, s, full("tenant-a", "order-1")).Ref
	raw := only(t, below.Store).Ref
	down := errors.New("down")
	for what, c := range map[string]struct {
		changed      []retrysafe.Ref
		feeds, loads error
		want         error
	}{
		"a record, and what is not sealed": {changed: []retrysafe.Ref{deployment.Ref(), raw, deployment.Probe()}},
		"a record that is gone":            {changed: []retrysafe.Ref{{Scope: raw.Scope, Key: "gone"}}, want: retrysafe.ErrChangesLost},
		"a record that does not open":      {changed: []retrysafe.Ref{raw}, loads: retrysafe.ErrUnreadable, want: retrysafe.ErrChangesLost},
		"a store that is down":             {changed: []retrysafe.Ref{raw}, loads: down, want: down},
		"a feed that is down":              {changed: []retrysafe.Ref{raw}, feeds: down, want: down},
	} {
		below.changed, below.feeds, below.loads = c.changed, c.feeds, c.loads
		changed, next, err := feed.Changes(t.Context(), "at")
		if !errors.Is(err, c.want) || errors.Is(err, retrysafe.ErrChangesLost) != errors.Is(c.want, retrysafe.ErrChangesLost) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if c.want == nil && (next != "at+" || !slices.Equal(changed, []retrysafe.Ref{want})) || c.want != nil && (changed != nil || next != "") {
			t.Errorf("%s: %v up to %q", what, changed, next)
		}
	}
	if _, _, err := over(t, struct{ retrysafe.Store }{below.Store}, ring(t, 1, 1)).(retrysafe.ChangeFeed).Changes(t.Context(), ""); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("over a store without changes: %v", err)
	}
}
