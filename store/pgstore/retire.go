package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// What a store does whose records move away, for package move. It takes the rights
// of the tables' owner.

// followFor is how long a store is followed at most.
const followFor = 24 * time.Hour

// Follow makes the store note every key that is written from now on, for a day at
// most, and returns the store's own name, which stays the same. It waits for
// transactions that have written keys. Whoever followed it before does no longer, and
// cannot retire it. It returns [ErrMoved] or [ErrFilling] if the store is closed, and
// [ErrUndelivered] if its outbox is not empty.
func (s *Store) Follow(ctx context.Context, by retrysafe.Owner) (source retrysafe.Owner, err error) {
	err = s.alone(ctx, "follow", lockKeys, func(ctx context.Context, tx moving) error {
		if err := s.delivered(ctx, tx); err != nil {
			return err
		}
		if source = tx.note.Source; tx.note.Part != storemove.Stays && tx.note.Part != storemove.Followed {
			source = storemove.NewName()
		}
		var now int64
		if err := tx.QueryRow(ctx, `SELECT `+nowMicros).Scan(&now); err != nil {
			return err
		}
		until := fromMicros(now).Add(followFor).Unix()
		if err := s.script(ctx, tx, s.moveSQL(unfollow)+";\n"+s.followSQL(until)); err != nil {
			return err
		}
		return s.writeNote(ctx, tx, storemove.Note{Part: storemove.Followed, Run: by, Source: source})
	})
	return source, err
}

// Unfollow ends what Follow began. The store serves on.
func (s *Store) Unfollow(ctx context.Context, by retrysafe.Owner) error {
	return s.alone(ctx, "unfollow", lockKeys, func(ctx context.Context, tx moving) error {
		if !tx.followedBy(by) {
			return ErrOvertaken
		}
		if err := s.script(ctx, tx, s.moveSQL(unfollow)); err != nil {
			return err
		}
		tx.note.Part = storemove.Stays
		return s.writeNote(ctx, tx, tx.note)
	})
}

// Written returns at most limit keys that were written since Follow and were not
// returned before: the records as they are now, and the keys that are gone.
// [ErrOvertaken]: somebody else follows the store.
func (s *Store) Written(ctx context.Context, by retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	err = s.alone(ctx, "read what was written", useKeys, func(ctx context.Context, tx moving) error {
		if !tx.followedBy(by) {
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

// Retire closes the store for good. While it holds the tables it calls rest with what
// [Store.Written] would return, until there is no more and rest was called with none.
// Then, and if every call returned nil, it takes the tables away and notes where the
// records are now. If anything fails, or the process is killed, the store serves on
// as before, unless it was the commit that failed: then nobody can say.
func (s *Store) Retire(ctx context.Context, by retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	return s.alone(ctx, "retire", lockAll, func(ctx context.Context, tx moving) error {
		if !tx.followedBy(by) {
			return ErrOvertaken
		}
		if err := s.delivered(ctx, tx); err != nil {
			return err
		}
		for more := true; more; {
			written, gone, err := s.written(ctx, tx, retireBatch)
			if err != nil {
				return err
			}
			if err := rest(ctx, written, gone); err != nil {
				return err
			}
			more = len(written)+len(gone) > 0
		}
		if err := s.script(ctx, tx, s.moveSQL(unfollow+";\n"+retire)); err != nil {
			return err
		}
		return s.writeNote(ctx, tx, storemove.Note{Part: storemove.Moved, Run: by, Source: tx.note.Source, Peer: to})
	})
}

// retireBatch is how many records Retire hands over at a time.
const retireBatch = 500

// Retired returns by which run of a move the store was retired; zero: it was not.
func (s *Store) Retired(ctx context.Context) (by retrysafe.Owner, err error) {
	n, err := s.readNote(ctx, s.pool)
	if err != nil || n.Part != storemove.Moved {
		return retrysafe.Owner{}, explain(err)
	}
	return n.Run, nil
}

var errMissed = fmt.Errorf("the store was followed for more than %v, and writes were missed; copy again", followFor)

// written takes from the log, and returns nothing only if that is empty. What a key
// was when it was noted does not matter: it is read now, and what comes later is
// noted again.
func (s *Store) written(ctx context.Context, tx moving, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	for len(written)+len(gone) == 0 {
		heads, ids, err := s.logged(ctx, tx, limit)
		if err != nil || len(ids) == 0 {
			return nil, nil, err
		}
		if written, err = s.present(ctx, tx, ids); err != nil {
			return nil, nil, err
		}
		for i := range written {
			delete(heads, idOf(written[i].Ref))
		}
		for k, head := range heads {
			if head == nil { // that it went is noted too, and comes later
				continue
			}
			first, d, err := open("head", head, k[:])
			if err != nil {
				return nil, nil, err
			}
			var r retrysafe.Record
			decodeHead(&r, first, &d)
			gone = append(gone, r.Ref)
		}
	}
	return written, gone, nil
}

// present returns the records with these ids.
func (s *Store) present(ctx context.Context, tx moving, ids []string) (records []retrysafe.Record, err error) {
	rows, err := tx.Query(ctx, s.moveSQL(selectWritten), ids)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var w row
		if err := w.scan(rows.Scan); err != nil {
			return nil, err
		}
		r, err := w.record()
		if err != nil {
			return nil, err
		}
		if idOf(r.Ref) != w.id {
			return nil, fmt.Errorf("%w: its row is another key's", retrysafe.ErrUnreadable)
		}
		records = append(records, r)
	}
	return records, rows.Err()
}

// logged takes keys from the log, with the heads of those that were deleted.
func (s *Store) logged(ctx context.Context, tx moving, limit int) (heads map[id][]byte, ids []string, err error) {
	rows, err := tx.Query(ctx, s.moveSQL(takeWritten), limit)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	heads = make(map[id][]byte)
	for rows.Next() {
		var key, head []byte
		if err := rows.Scan(&key, &head); err != nil {
			return nil, nil, err
		}
		if len(key) != len(id{}) {
			return nil, nil, errMissed
		}
		k := id(key)
		if _, known := heads[k]; !known {
			ids = append(ids, k.text())
			heads[k] = nil
		}
		if len(head) > 0 {
			heads[k] = head
		}
	}
	return heads, ids, rows.Err()
}

// delivered returns nil if the outbox is empty.
func (s *Store) delivered(ctx context.Context, tx moving) error {
	var waiting, dead int
	if err := tx.QueryRow(ctx, s.moveSQL(countUndelivered)).Scan(&waiting, &dead); err != nil {
		return err
	}
	if waiting+dead > 0 {
		return fmt.Errorf("%w: %d messages wait and %d are dead letters, and messages do not move; let the workers deliver them, redrive or drop the dead letters, and copy again",
			ErrUndelivered, waiting, dead)
	}
	return nil
}
