package pgstore

import (
	"context"
	"errors"
	"time"
)

// ErrClosed says that the store is closed. The step was not sent.
var ErrClosed = errors.New("pgstore: the store is closed")

// Close closes the store's connections, and the pool if Open made it. It waits for steps
// that are under way; later steps get [ErrClosed].
func (s *Store) Close() error {
	s.life.End()
	errs := []error{s.awaitCommits()}
	// A batch goes on when its callers have stopped waiting.
	s.reserves.batcher.Wait()
	s.relaxed.batcher.Wait()
	s.settles.batcher.Wait()
	s.largeReserves.batcher.Wait()
	s.largeSettles.batcher.Wait()
	s.reads.batcher.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	for _, p := range []*connPool{&s.conns, &s.relaxedConns, &s.outbox.conns, &s.changes.conns} {
		errs = append(errs, p.close(ctx))
	}
	if s.ownPool {
		s.pool.Close()
	}
	return errors.Join(errs...)
}

// awaitCommits waits for commits whose caller has stopped waiting. On a pool of the
// caller's a commit has no time limit, because it must not be cancelled, so the wait has
// one.
func (s *Store) awaitCommits() error {
	done := make(chan struct{})
	go func() {
		s.commits.Wait()
		close(done)
	}()
	limit := time.NewTimer(2 * s.timeout)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		return errors.New("pgstore: close: a commit is still under way on the caller's pool")
	}
}
