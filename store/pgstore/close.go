package pgstore

import (
	"context"
	"errors"
	"time"
)

// ErrClosed says that the store was closed. The step was not sent.
var ErrClosed = errors.New("pgstore: the store is closed")

// awaitCommits waits for commits that nobody else waits for any more. On a pool of
// the caller's they may take for ever: it must not be cancelled.
func (s *Store) awaitCommits() error {
	ended := make(chan struct{})
	go func() {
		s.commits.Wait()
		close(ended)
	}()
	limit := time.NewTimer(2 * s.timeout)
	defer limit.Stop()
	select {
	case <-ended:
		return nil
	case <-limit.C:
		return errors.New("pgstore: close: a commit is still under way on the caller's pool")
	}
}

// Close ends the store's connections, and the pool if Open made it. Steps under
// way end first; later ones get [ErrClosed].
func (s *Store) Close() error {
	s.life.End()
	errs := []error{s.awaitCommits()}
	// A caller that has gone may have left its trip to end by itself.
	s.reserves.lane.Wait()
	s.relaxed.lane.Wait()
	s.settles.lane.Wait()
	s.reads.lane.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	for _, l := range []*links{&s.links, &s.soft, &s.box.links} {
		errs = append(errs, l.close(ctx))
	}
	if s.ownPool {
		s.pool.Close()
	}
	return errors.Join(errs...)
}
