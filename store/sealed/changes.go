package sealed

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
)

var _ retrysafe.ChangeFeed = (*store)(nil)

// Changes implements [retrysafe.ChangeFeed] if the store below does. The store below
// knows records by hashes, so each changed record is read for its true name. If one is
// not there any more, or does not open, its name is not known: every record may be the
// one that was changed.
func (s *store) Changes(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
	feed, ok := s.below.(retrysafe.ChangeFeed)
	if !ok {
		return nil, "", errors.ErrUnsupported
	}
	below, next, err := feed.Changes(ctx, cursor)
	if err != nil {
		return nil, "", err
	}
	var changed []retrysafe.Ref
	for _, ref := range below {
		if deployment.Is(ref) {
			continue
		}
		got, err := s.below.Load(ctx, ref)
		if err == nil {
			ref, err = s.keys.nameOf(&got)
		}
		if errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable) {
			return nil, "", fmt.Errorf("%w: %w", retrysafe.ErrChangesLost, err)
		}
		if err != nil {
			return nil, "", err
		}
		changed = append(changed, ref)
	}
	return changed, next, nil
}

// nameOf returns the true Ref of a record below.
func (k *Keyring) nameOf(below *retrysafe.Record) (retrysafe.Ref, error) {
	w := k.work()
	defer w.done()
	ref, _, err := w.openNames(below)
	return ref, err
}
