package tiered

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
)

const (
	// maxLag is how long the cache answers without having read the store's changes. After
	// that it asks the store below, until it has read them again.
	maxLag = 5 * time.Second
	// retryPause is the pause after a read that failed.
	retryPause = 100 * time.Millisecond
)

// Run follows the changes of the store below.
//
// What was cached before the first read may be outdated already, so it is dropped after
// that read: a change is before the cursor, and then what was cached is dropped, or
// behind it, and then it is read. A reply that was under way when its key is dropped is
// not cached either; see [flight].
func (s *store) Run(ctx context.Context) error {
	feed, ok := s.below.(retrysafe.ChangeFeed)
	if !ok {
		return errors.ErrUnsupported
	}
	for cursor := ""; ctx.Err() == nil; {
		asked := s.now()
		changed, next, err := feed.Changes(ctx, cursor)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			s.followed.Store(nil)
			return err
		case err != nil:
			if errors.Is(err, retrysafe.ErrChangesLost) {
				cursor = ""
			}
			pause(ctx, retryPause)
			continue
		case cursor == "":
			s.Flush()
		}
		for _, ref := range changed {
			s.Forget(ref)
		}
		until := asked.add(maxLag)
		cursor = next
		s.followed.Store(&until)
	}
	return nil
}

// follows reports whether cached records may be served: the store's changes were read
// lately, or nothing follows them and MaxAge alone bounds the age of a record. After the
// end of Run the cache is not served any more.
func (s *store) follows(now instant) bool {
	until := s.followed.Load()
	return until == nil || now.before(*until)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
