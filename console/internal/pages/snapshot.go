package pages

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// background owns the reads that go on after the request that began them.
type background struct {
	ctx    context.Context // of all reads; it ends with the owner, not with a request
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func (b *background) start() { b.ctx, b.cancel = context.WithCancel(context.Background()) }

// begin runs a read, unless the owner is closed.
func (b *background) begin(read func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(read)
	return true
}

// stop ends all reads and waits for them.
func (b *background) stop() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
}

// A snapshot is the latest result of a read that may take longer than a page may. A page
// waits a moment for a new result, and shows the one before with its age if there is none
// yet. One read runs at a time, and after it the store rests: four times as long as it
// took, or sixty times after a slow read, behind which other lists of a store may wait.
type snapshot[T any] struct {
	work   *background
	logger *slog.Logger
	read   func(context.Context) (T, error)

	mu      sync.Mutex
	last    taken[T]
	took    time.Duration // by the last read, and when that ended
	ended   time.Time
	stale   bool          // an operator has changed something since the last read began
	running chan struct{} // closed when the read that is under way has ended
}

// taken is a result and when it was read. A zero At: nothing was read yet.
type taken[T any] struct {
	Value T
	At    time.Time
	Err   error
}

// Age returns how old the result is.
func (t *taken[T]) Age() time.Duration { return time.Since(t.At) }

const (
	// patience is how long a page waits for all that may take long.
	patience = 120 * time.Millisecond
	// fresh is how long a result is shown without a new read.
	fresh = time.Second
	// longestRead bounds a read in the background.
	longestRead = time.Minute
)

func newSnapshot[T any](work *background, logger *slog.Logger, read func(context.Context) (T, error)) *snapshot[T] {
	return &snapshot[T]{work: work, logger: logger, read: read}
}

// rest returns how long no read begins after the last one. The caller holds mu.
func (s *snapshot[T]) rest() time.Duration {
	if s.took > patience {
		return 60 * s.took
	}
	return max(fresh, 4*s.took)
}

// begin starts a read, if it is time for one, and returns the one that is under way.
func (s *snapshot[T]) begin() (running chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil || !s.stale && time.Since(s.ended) <= s.rest() {
		return s.running
	}
	running = make(chan struct{})
	if s.work.begin(s.refresh) {
		s.running, s.stale = running, false
	}
	return s.running
}

// get returns the latest result. If a read is under way it waits for that until ctx ends.
func (s *snapshot[T]) get(ctx context.Context) taken[T] {
	if running := s.begin(); running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// invalidate lets the next page read anew.
func (s *snapshot[T]) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

func (s *snapshot[T]) refresh() {
	ctx, cancel := context.WithTimeout(s.work.ctx, longestRead)
	defer cancel()
	began := time.Now()
	v, err := s.read(ctx)
	if err != nil && s.work.ctx.Err() == nil {
		s.logger.Warn("console: the overview could not be read from the store", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.running)
	s.running, s.took, s.ended = nil, time.Since(began), time.Now()
	if err != nil && !s.last.At.IsZero() {
		s.last.Err = err // the result before stays, with its age
		return
	}
	s.last = taken[T]{v, began, err}
}
