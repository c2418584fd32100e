package sealed_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// A feed is a store that tells of changes.
type feed struct {
	retrysafe.Store
	changed []retrysafe.Ref
	err     error
}

func (f *feed) Changes(context.Context, string) ([]retrysafe.Ref, string, error) {
	return f.changed, "next", f.err
}

// The true name of a record that is gone or does not open is not known: a follower of
// the changes has to forget everything, and go on from the present.
func TestChangesAreToldByTheirTrueNames(t *testing.T) {
	t.Parallel()
	without, _, below := stranded(t, full("tenant-a", "order-1"))
	old := only(t, below).Ref
	fresh := full("tenant-a", "order-2")
	fresh.Owner = owner(2)
	create(t, without, fresh)
	later := lowered(t, below, owner(2)).Ref
	broken := errors.New("broken")

	for what, c := range map[string]struct {
		keys    []uint32
		changed []retrysafe.Ref
		err     error
		want    []retrysafe.Ref
		is      error
	}{
		"all open":         {keys: []uint32{1, 2}, changed: []retrysafe.Ref{old, later}, want: []retrysafe.Ref{{Scope: "tenant-a", Key: "order-1"}, fresh.Ref}},
		"one does not":     {keys: []uint32{2}, changed: []retrysafe.Ref{later, old}, is: retrysafe.ErrChangesLost},
		"one is gone":      {keys: []uint32{1, 2}, changed: []retrysafe.Ref{old, {Key: "gone"}}, is: retrysafe.ErrChangesLost},
		"the feed fails":   {keys: []uint32{2}, err: broken, is: broken},
		"none were there":  {keys: []uint32{2}},
		"no feed is below": {is: errors.ErrUnsupported},
	} {
		s := over(t, struct{ retrysafe.Store }{below}, ring(t, 2, 2))
		if c.keys != nil {
			s = over(t, &feed{below, c.changed, c.err}, ring(t, 2, c.keys...))
		}
		got, next, err := s.(retrysafe.ChangeFeed).Changes(t.Context(), "")
		if !errors.Is(err, c.is) || !slices.Equal(got, c.want) || err == nil && next != "next" {
			t.Errorf("%s: Changes = %v, %q, %v; want %v, %v", what, got, next, err, c.want, c.is)
		}
	}
}
