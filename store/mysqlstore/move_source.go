package mysqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// followFor is how long a store logs its writes at most, so that a move that was killed
// does not fill the disk.
const followFor = 24 * time.Hour

// errMissed says that the log of written keys is incomplete.
var errMissed = fmt.Errorf("mysqlstore: the store was followed for more than %v, and writes were missed; copy again", followFor)

// Follow implements [storemove.Source]. Triggers on the table of keys write the log; the
// server waits for the transactions on that table before it creates one.
func (m mover) Follow(ctx context.Context, run retrysafe.Owner) (source retrysafe.Owner, err error) {
	err = m.do(ctx, "follow", func(c conn, n storemove.Note) error {
		if err := n.Closed(); err != nil {
			return err
		}
		if err := delivered(ctx, c); err != nil {
			return err
		}
		if source = n.Source; n.Part != storemove.Stays && n.Part != storemove.Followed {
			source = storemove.NewName()
		}
		now, err := serverNow(ctx, c)
		if err != nil {
			return err
		}
		if err := execAll(ctx, c, append(append(unfollow[:len(unfollow):len(unfollow)], writtenTable), follow(now.Add(followFor).Unix())...)...); err != nil {
			return fmt.Errorf("create triggers (the user needs TRIGGER on the database, and with a binary log SUPER or log_bin_trust_function_creators): %w", err)
		}
		return writeNote(ctx, c, storemove.Note{Part: storemove.Followed, Run: run, Source: source, At: now})
	})
	return source, err
}

// Unfollow implements [storemove.Source].
func (m mover) Unfollow(ctx context.Context, run retrysafe.Owner) error {
	return m.do(ctx, "unfollow", func(c conn, n storemove.Note) error {
		if !n.IsBy(storemove.Followed, run) {
			return storemove.ErrOvertaken
		}
		n.Part, n.Peer = storemove.Stays, ""
		if err := writeNote(ctx, c, n); err != nil {
			return err
		}
		return execAll(ctx, c, unfollow...)
	})
}

// Written implements [storemove.Source].
func (m mover) Written(ctx context.Context, run retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	err = m.do(ctx, "read what was written", func(c conn, n storemove.Note) error {
		if !n.IsBy(storemove.Followed, run) {
			return storemove.ErrOvertaken
		}
		written, gone, err = takeLogged(ctx, c, limit)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return written, gone, nil
}

// Retire implements [storemove.Source]. The connection has all tables locked until that
// of the keys is renamed: if anything fails before, or the process is killed, the store
// stays open.
func (m mover) Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	return m.do(ctx, "retire", func(c conn, n storemove.Note) error {
		if err := n.Closed(); err != nil {
			return err
		}
		if !n.IsBy(storemove.Followed, run) {
			return storemove.ErrOvertaken
		}
		now, err := serverNow(ctx, c)
		if err != nil {
			return err
		}
		n.Peer, n.At = to, now // they count once the table of keys is renamed
		if err := writeNote(ctx, c, n); err != nil {
			return err
		}
		if err := execAll(ctx, c, `LOCK TABLES retrysafe_keys WRITE, retrysafe_written WRITE, retrysafe_outbox WRITE, retrysafe_dead WRITE, retrysafe_move WRITE`); err != nil {
			return err
		}
		if err := delivered(ctx, c); err != nil {
			return err
		}
		for more := true; more; {
			written, gone, err := takeLogged(ctx, c, retireBatch)
			if err != nil {
				return err
			}
			if err := rest(ctx, written, gone); err != nil {
				return err
			}
			more = len(written)+len(gone) > 0
		}
		commit := context.WithoutCancel(ctx)
		if err := execAll(commit, c, retireKeys); err != nil {
			return err
		}
		n.Part = storemove.Moved
		_ = writeNote(commit, c, n) // the renamed table says the same
		_ = execAll(commit, c, retireOthers...)
		_ = execAll(commit, c, unfollow...)
		return nil
	})
}

// retireBatch is how many keys Retire takes from the log at a time.
const retireBatch = 500

// Retired implements [storemove.Source].
func (m mover) Retired(ctx context.Context) (run retrysafe.Owner, err error) {
	n, err := readNote(ctx, m.s.steps.db)
	if err != nil || n.Part != storemove.Moved {
		return retrysafe.Owner{}, err
	}
	return n.Run, nil
}

// takeLogged takes at most limit entries from the log, and more if those have no key to
// return: it returns nothing only if the log is empty. The records are read now. If one
// is written later, its key is logged again. An entry that is committed later than one
// behind it is taken by a later call: entries are deleted by their numbers.
func takeLogged(ctx context.Context, c conn, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	for len(written)+len(gone) == 0 {
		var numbers, ids []any
		heads := map[id][]byte{}
		if err := runOn(ctx, c, statement{sql: selectWritten, args: []any{limit}, each: func(scan func(...any) error) error {
			var n int64
			var key, head []byte
			if err := scan(&n, &key, &head); err != nil {
				return err
			}
			if len(key) != len(id{}) {
				return errMissed
			}
			numbers = append(numbers, n)
			if _, again := heads[id(key)]; !again {
				heads[id(key)] = nil
				ids = append(ids, key)
			}
			if head != nil {
				heads[id(key)] = head
			}
			return nil
		}}); err != nil || len(numbers) == 0 {
			return nil, nil, err
		}
		if written, gone, err = readLogged(ctx, c, ids, heads); err != nil {
			return nil, nil, err
		}
		if err := c.script(ctx, forEach(`DELETE FROM retrysafe_written WHERE n = ?`, numbers)...); err != nil {
			return nil, nil, err
		}
	}
	return written, gone, nil
}

// readLogged reads the records of keys. Those that are not there were deleted, if the log
// has their heads; otherwise the entry of the deletion comes later.
func readLogged(ctx context.Context, c conn, ids []any, heads map[id][]byte) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	err = runOn(ctx, c, statement{sql: readKeys(len(ids)), args: ids, each: func(scan func(...any) error) error {
		var at row
		if err := at.scan(scan); err != nil {
			return err
		}
		r, err := at.decode()
		if err != nil {
			return err
		}
		written = append(written, r)
		delete(heads, at.id)
		return nil
	}})
	if err != nil {
		return nil, nil, err
	}
	for _, head := range heads {
		if head == nil {
			continue
		}
		r, err := storekit.DecodeRecord(head)
		if err != nil {
			return nil, nil, err
		}
		gone = append(gone, r.Ref)
	}
	return written, gone, nil
}

// delivered returns nil if the outbox is empty.
func delivered(ctx context.Context, db execer) error {
	var waiting, dead int
	if err := runOn(ctx, db, statement{sql: countUndelivered, each: func(scan func(...any) error) error { return scan(&waiting, &dead) }}); err != nil {
		return err
	}
	if waiting+dead > 0 {
		return fmt.Errorf("%w: %d messages wait and %d are dead letters, and messages do not move; let the workers deliver them, redrive or drop the dead letters, and copy again",
			storemove.ErrUndelivered, waiting, dead)
	}
	return nil
}
