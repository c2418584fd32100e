package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// followFor is how long a store logs its writes at most, so that a move that was killed
// does not fill the disk.
const followFor = 24 * time.Hour

// errMissed says that the log of written keys is incomplete.
var errMissed = fmt.Errorf("sqlitestore: the store was followed for more than %v, and writes were missed; copy again", followFor)

// Follow implements [storemove.Source]. Triggers on the table of keys write the log.
func (m mover) Follow(ctx context.Context, run retrysafe.Owner) (source retrysafe.Owner, err error) {
	err = m.tx(ctx, "follow", func(ctx context.Context, tx execer, n storemove.Note) error {
		if err := n.Closed(); err != nil {
			return err
		}
		if err := delivered(ctx, tx); err != nil {
			return err
		}
		if source = n.Source; n.Part != storemove.Stays && n.Part != storemove.Followed {
			source = storemove.NewName()
		}
		now := m.s.now()
		if err := execAll(ctx, tx, slices.Concat(unfollow, follow(now.Add(followFor).Unix()))...); err != nil {
			return err
		}
		return writeNote(ctx, tx, storemove.Note{Part: storemove.Followed, Run: run, Source: source, At: now})
	})
	return source, err
}

// Unfollow implements [storemove.Source].
func (m mover) Unfollow(ctx context.Context, run retrysafe.Owner) error {
	return m.tx(ctx, "unfollow", func(ctx context.Context, tx execer, n storemove.Note) error {
		if !n.IsBy(storemove.Followed, run) {
			return storemove.ErrOvertaken
		}
		n.Part = storemove.Stays
		if err := execAll(ctx, tx, unfollow...); err != nil {
			return err
		}
		return writeNote(ctx, tx, n)
	})
}

// Written implements [storemove.Source].
func (m mover) Written(ctx context.Context, run retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	err = m.tx(ctx, "read what was written", func(ctx context.Context, tx execer, n storemove.Note) error {
		if !n.IsBy(storemove.Followed, run) {
			return storemove.ErrOvertaken
		}
		written, gone, err = m.takeLogged(ctx, tx, limit)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return written, gone, nil
}

// Retire implements [storemove.Source]. It is one transaction, which has the write lock
// until the tables are renamed: if anything fails, or the process is killed, the store
// stays open.
func (m mover) Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	caller := ctx
	return m.tx(ctx, "retire", func(ctx context.Context, tx execer, n storemove.Note) error {
		if err := n.Closed(); err != nil {
			return err
		}
		if !n.IsBy(storemove.Followed, run) {
			return storemove.ErrOvertaken
		}
		if err := delivered(ctx, tx); err != nil {
			return err
		}
		for more := true; more; {
			written, gone, err := m.takeLogged(ctx, tx, retireBatch)
			if err != nil {
				return err
			}
			if err := rest(caller, written, gone); err != nil {
				return err
			}
			more = len(written)+len(gone) > 0
		}
		if err := execAll(ctx, tx, slices.Concat(unfollow, retire)...); err != nil {
			return err
		}
		return writeNote(ctx, tx, storemove.Note{Part: storemove.Moved, Run: run, Source: n.Source, Peer: to, At: m.s.now()})
	})
}

// retireBatch is how many keys Retire takes from the log at a time.
const retireBatch = 500

// Retired implements [storemove.Source].
func (m mover) Retired(ctx context.Context) (run retrysafe.Owner, err error) {
	n, err := readNote(ctx, m.s.db)
	if err != nil || n.Part != storemove.Moved {
		return retrysafe.Owner{}, err
	}
	return n.Run, nil
}

// takeLogged takes at most limit entries from the log, and more if those have no key to
// return: it returns nothing only if the log is empty. The records are read now. If one
// is written later, its key is logged again.
func (m mover) takeLogged(ctx context.Context, tx execer, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	for len(written)+len(gone) == 0 {
		last, err := m.readLogged(ctx, tx, limit, func(r retrysafe.Record, here bool) {
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

// readLogged calls each once for every key in the first limit entries of the log, and
// returns the number of the last entry, or zero if the log is empty.
func (m mover) readLogged(ctx context.Context, tx execer, limit int, each func(r retrysafe.Record, here bool)) (last int64, err error) {
	rows, err := tx.QueryContext(ctx, selectWritten, limit)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	now, seen := m.s.now(), make(map[id]bool)
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
		if seen[id(key)] || !here && was == nil { // the entry of its deletion comes later
			continue
		}
		if !here {
			rec = was
		}
		r, err := storekit.DecodeRecord(rec)
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
			storemove.ErrUndelivered, waiting, dead)
	}
	return nil
}
