package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// What a store does whose records move away, for package move.

// followFor is how long a store is followed at most.
const followFor = 24 * time.Hour

// Follow makes the store note every key that is written from now on, for a day at
// most, and returns the store's own name, which stays the same. Whoever followed it
// before does no longer, and cannot retire it. It returns [ErrMoved] or [ErrFilling]
// if the store is closed, and [ErrUndelivered] if its outbox is not empty.
func (s *Store) Follow(ctx context.Context, by retrysafe.Owner) (source retrysafe.Owner, err error) {
	err = s.alone(ctx, "follow", func(ctx context.Context, tx execer, n storemove.Note) error {
		if err := n.Closed(); err != nil {
			return err
		}
		if err := delivered(ctx, tx); err != nil {
			return err
		}
		if source = n.Source; n.Part != storemove.Stays && n.Part != storemove.Followed {
			source = storemove.NewName()
		}
		now := s.now()
		return run(ctx, tx, append(unfollow[:len(unfollow):len(unfollow)], follow(now.Add(followFor).Unix())...), func() error {
			return writeNote(ctx, tx, storemove.Note{Part: storemove.Followed, Run: by, Source: source, At: now})
		})
	})
	return source, err
}

// Unfollow ends what Follow began. The store serves on.
func (s *Store) Unfollow(ctx context.Context, by retrysafe.Owner) error {
	return s.alone(ctx, "unfollow", func(ctx context.Context, tx execer, n storemove.Note) error {
		if !n.IsBy(storemove.Followed, by) {
			return ErrOvertaken
		}
		n.Part = storemove.Stays
		return run(ctx, tx, unfollow, func() error { return writeNote(ctx, tx, n) })
	})
}

// Written returns at most limit keys that were written since Follow and were not
// returned before: the records as they are now, and the keys that are gone.
// [ErrOvertaken]: somebody else follows the store.
func (s *Store) Written(ctx context.Context, by retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	err = s.alone(ctx, "read what was written", func(ctx context.Context, tx execer, n storemove.Note) error {
		if !n.IsBy(storemove.Followed, by) {
			return ErrOvertaken
		}
		written, gone, err = s.written(ctx, tx, limit)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return written, gone, nil
}

// Retire closes the store for good. While it holds the write lock it calls rest with
// what [Store.Written] would return, until there is no more and rest was called with
// none. Then, and if every call returned nil, it takes the tables away and notes
// where the records are now. If anything fails, or the process is killed, the store
// serves on as before.
func (s *Store) Retire(ctx context.Context, by retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	caller := ctx
	return s.alone(ctx, "retire", func(ctx context.Context, tx execer, n storemove.Note) error {
		if err := n.Closed(); err != nil {
			return err
		}
		if !n.IsBy(storemove.Followed, by) {
			return ErrOvertaken
		}
		if err := delivered(ctx, tx); err != nil {
			return err
		}
		for more := true; more; {
			written, gone, err := s.written(ctx, tx, retireBatch)
			if err != nil {
				return err
			}
			if err := rest(caller, written, gone); err != nil {
				return err
			}
			more = len(written)+len(gone) > 0
		}
		return run(ctx, tx, append(unfollow[:len(unfollow):len(unfollow)], retire...), func() error {
			return writeNote(ctx, tx, storemove.Note{Part: storemove.Moved, Run: by, Source: n.Source, Peer: to, At: s.now()})
		})
	})
}

// retireBatch is how many records Retire hands over at a time.
const retireBatch = 500

// Retired returns by which run of a move the store was retired; zero: it was not.
func (s *Store) Retired(ctx context.Context) (by retrysafe.Owner, err error) {
	n, err := readNote(ctx, s.db)
	if err != nil || n.Part != storemove.Moved {
		return retrysafe.Owner{}, err
	}
	return n.Run, nil
}

var errMissed = fmt.Errorf("sqlitestore: the store was followed for more than %v, and writes were missed; copy again", followFor)

// written takes from the log, and returns nothing only if that is empty. What a key
// was when it was noted does not matter: it is read now, and what comes later is
// noted again.
func (s *Store) written(ctx context.Context, tx execer, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	for len(written)+len(gone) == 0 {
		last, err := s.logged(ctx, tx, limit, func(r retrysafe.Record, here bool) {
			if here {
				written = append(written, r)
			} else {
				gone = append(gone, r.Ref)
			}
		})
		if err != nil || last == 0 {
			return nil, nil, err
		}
		if _, err := tx.ExecContext(ctx, deleteWritten, last); err != nil {
			return nil, nil, err
		}
	}
	return written, gone, nil
}

// logged calls each for the keys at the beginning of the log, and returns where it
// ended; zero: there is none.
func (s *Store) logged(ctx context.Context, tx execer, limit int, each func(r retrysafe.Record, here bool)) (last int64, err error) {
	rows, err := tx.QueryContext(ctx, selectWritten, limit)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	now, seen := s.now(), make(map[id]bool)
	for rows.Next() {
		var key, was, rec []byte
		var due sql.NullInt64
		if err := rows.Scan(&last, &key, &was, &due, &rec); err != nil {
			return 0, err
		}
		if len(key) != len(id{}) {
			return 0, errMissed
		}
		here := rec != nil
		if seen[id(key)] || !here && was == nil { // that it went is noted too, later
			continue
		}
		if !here {
			rec = was
		}
		r, err := retrysafe.DecodeRecord(rec)
		if err == nil && string(idOf(r.Ref)) != string(key) {
			err = errOther
		}
		if err != nil {
			return 0, err
		}
		seen[id(key)], r.ReadAt = true, now
		each(r, here)
	}
	return last, rows.Err()
}

// delivered returns nil if the outbox is empty.
func delivered(ctx context.Context, tx execer) error {
	var waiting, dead int
	if err := tx.QueryRowContext(ctx, countUndelivered).Scan(&waiting, &dead); err != nil {
		return err
	}
	if waiting+dead > 0 {
		return fmt.Errorf("%w: %d messages wait and %d are dead letters, and messages do not move; let the workers deliver them, redrive or drop the dead letters, and copy again",
			ErrUndelivered, waiting, dead)
	}
	return nil
}
