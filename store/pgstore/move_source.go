package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// followFor is for how long the store logs what is written, at most.
const followFor = 24 * time.Hour

// Follow implements [storemove.Source]. The log is filled for a day at most.
func (m *mover) Follow(ctx context.Context, run retrysafe.Owner) (source retrysafe.Owner, err error) {
	sql := &m.s.moveSQL
	err = m.do(ctx, "follow", &sql.lockKeys, func(ctx context.Context, tx moveTx) error {
		if err := m.checkDelivered(ctx, tx); err != nil {
			return err
		}
		if source = tx.note.Source; tx.note.Part != storemove.Stays && tx.note.Part != storemove.Followed {
			source = storemove.NewName()
		}
		var now int64
		if err := tx.QueryRow(ctx, sql.now.sql).Scan(&now); err != nil {
			return err
		}
		until := fromMicros(now).Add(followFor).Unix()
		if err := m.script(ctx, tx, sql.unfollow.sql+";\n"+sql.followUntil(until)); err != nil {
			return err
		}
		return m.writeNote(ctx, tx, storemove.Note{Part: storemove.Followed, Run: run, Source: source})
	})
	return source, err
}

// Unfollow implements [storemove.Source].
func (m *mover) Unfollow(ctx context.Context, run retrysafe.Owner) error {
	sql := &m.s.moveSQL
	return m.do(ctx, "unfollow", &sql.lockKeys, func(ctx context.Context, tx moveTx) error {
		if !tx.followedBy(run) {
			return storemove.ErrOvertaken
		}
		if err := m.exec(ctx, tx, &sql.unfollow); err != nil {
			return err
		}
		tx.note.Part = storemove.Stays
		return m.writeNote(ctx, tx, tx.note)
	})
}

// Written implements [storemove.Source].
func (m *mover) Written(ctx context.Context, run retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	err = m.do(ctx, "read what was written", &m.s.moveSQL.useKeys, func(ctx context.Context, tx moveTx) error {
		if !tx.followedBy(run) {
			return storemove.ErrOvertaken
		}
		written, gone, err = m.takeWritten(ctx, tx, limit)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return written, gone, nil
}

// Retire implements [storemove.Source]. It closes the store by other names of its
// tables, in the transaction that keeps writers out.
func (m *mover) Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	sql := &m.s.moveSQL
	return m.do(ctx, "retire", &sql.lockAll, func(ctx context.Context, tx moveTx) error {
		if !tx.followedBy(run) {
			return storemove.ErrOvertaken
		}
		if err := m.checkDelivered(ctx, tx); err != nil {
			return err
		}
		for more := true; more; {
			written, gone, err := m.takeWritten(ctx, tx, retireBatch)
			if err != nil {
				return err
			}
			if err := rest(ctx, written, gone); err != nil {
				return err
			}
			more = len(written)+len(gone) > 0
		}
		if err := m.exec(ctx, tx, &sql.unfollow, &sql.retire); err != nil {
			return err
		}
		return m.writeNote(ctx, tx, storemove.Note{Part: storemove.Moved, Run: run, Source: tx.note.Source, Peer: to})
	})
}

// retireBatch is how many records Retire hands over at a time.
const retireBatch = 500

// Retired implements [storemove.Source].
func (m *mover) Retired(ctx context.Context) (run retrysafe.Owner, err error) {
	return m.runOf(ctx, storemove.Moved)
}

var errMissed = fmt.Errorf("the store was followed for more than %v, and writes were missed; copy again", followFor)

// takeWritten takes keys from the log, and returns nothing only if that is empty. The
// records are read now, after they were logged: a later write is logged again.
func (m *mover) takeWritten(ctx context.Context, tx moveTx, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	for len(written)+len(gone) == 0 {
		heads, ids, err := m.takeLog(ctx, tx, limit)
		if err != nil || len(ids) == 0 {
			return nil, nil, err
		}
		if written, err = m.readRecords(ctx, tx, ids); err != nil {
			return nil, nil, err
		}
		for i := range written {
			delete(heads, idOf(written[i].Ref))
		}
		for k, head := range heads {
			if head == nil { // its deletion is logged too, behind this
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

// takeLog takes entries from the log: the ids, and the heads of rows that were deleted.
func (m *mover) takeLog(ctx context.Context, tx moveTx, limit int) (heads map[id][]byte, ids []string, err error) {
	rows, err := tx.Query(ctx, m.s.moveSQL.takeWritten.sql, limit)
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

// readRecords returns the records with these ids that are there.
func (m *mover) readRecords(ctx context.Context, tx moveTx, ids []string) (records []retrysafe.Record, err error) {
	rows, err := tx.Query(ctx, m.s.moveSQL.selectWritten.sql, ids)
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

// checkDelivered returns nil if the outbox is empty.
func (m *mover) checkDelivered(ctx context.Context, tx moveTx) error {
	var waiting, dead int
	if err := tx.QueryRow(ctx, m.s.moveSQL.countUndelivered.sql).Scan(&waiting, &dead); err != nil {
		return err
	}
	if waiting+dead > 0 {
		return fmt.Errorf("%w: %d messages wait and %d are dead letters, and messages do not move; let the workers deliver them, redrive or drop the dead letters, and copy again",
			storemove.ErrUndelivered, waiting, dead)
	}
	return nil
}
