package memstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

const (
	// keptChanges is how many announced writes are remembered.
	keptChanges = 1000
	// changesWait is how long Changes waits for a write.
	changesWait = 500 * time.Millisecond
)

// changes are the latest announced writes. The zero value is ready for use.
type changes struct {
	mu    sync.Mutex
	count uint64          // of all writes that were announced
	last  []retrysafe.Ref // the latest of them
	wake  chan struct{}   // closed by the next one; nil if no caller waits
}

// add is called with the shard of the key locked: after the write is visible, before
// Swap returns.
func (c *changes) add(ref retrysafe.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) == keptChanges {
		c.last = append(c.last[:0], c.last[keptChanges/2:]...)
	}
	c.last = append(c.last, ref)
	c.count++
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

// after returns the writes after the given number of them, or a channel that the next
// write closes.
func (c *changes) after(n uint64) (some []retrysafe.Ref, count uint64, wake <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch behind := c.count - n; {
	case n > c.count || behind > uint64(len(c.last)):
		return nil, 0, nil, retrysafe.ErrChangesLost
	case behind > 0:
		return append(some, c.last[uint64(len(c.last))-behind:]...), c.count, nil, nil
	}
	if c.wake == nil {
		c.wake = make(chan struct{})
	}
	return nil, c.count, c.wake, nil
}

// Changes implements [retrysafe.ChangeFeed]. It remembers the last 500 announced writes
// at least.
func (s *Store) Changes(ctx context.Context, cursor string) (changed []retrysafe.Ref, next string, err error) {
	if cursor == "" {
		s.changes.mu.Lock()
		defer s.changes.mu.Unlock()
		return nil, strconv.FormatUint(s.changes.count, 10), ctx.Err()
	}
	n, err := strconv.ParseUint(cursor, 10, 64)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %q is no cursor of this store", retrysafe.ErrChangesLost, cursor)
	}
	for timeout := time.After(changesWait); ; {
		some, count, wake, err := s.changes.after(n)
		if err != nil || wake == nil {
			return some, strconv.FormatUint(count, 10), err
		}
		select {
		case <-wake:
		case <-timeout:
			return nil, cursor, nil
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
}
