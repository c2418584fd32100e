package mysqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// Most swaps complete a key that their caller has reserved, and are applied. So a batch is
// first sent as one transaction in one round trip, in which the server compares: see
// swapAtOnce. If one of the swaps is to be refused, none is applied.
//
// Then the batch is one transaction of two round trips: the first locks and reads the
// rows, and does not wait for a lock; the second writes what has changed and commits.
// Between them the store compares revisions and owners. If a row is locked by another
// transaction the batch is not applied, and each of its swaps goes by itself: only the
// one of that row waits.

// swap is the request of one Swap.
type swap struct {
	id id
	w  *retrysafe.Write
}

// swapAll applies the swaps of a batch.
func (s *Store) swapAll(ctx context.Context, requests []swap) []answer {
	answers := make([]answer, len(requests))
	for some := range chunks(indexes(len(requests)), func(i int) int { return sizeOf(requests[i].w) }) {
		part := make([]swap, len(some))
		for n, i := range some {
			part[n] = requests[i]
		}
		copy(answers[some[0]:], s.swapPart(ctx, part))
	}
	return answers
}

// swapPart applies swaps in one transaction: by one round trip if all of them are plain
// and are applied, otherwise by two.
func (s *Store) swapPart(ctx context.Context, requests []swap) []answer {
	switch {
	case !allPlain(requests):
	case len(requests) == 1 && s.steps.lone:
		if got, done := s.swapLone(ctx, requests[0]); done {
			return []answer{got}
		}
	case s.steps.several:
		if answers, done := s.swapAtOnce(ctx, requests); done {
			return answers
		}
	}
	return s.swapSome(ctx, ctx, requests, lockKeys)
}

// swapSome applies swaps in one transaction. Wait bounds the wait for locks, and ctx the
// commit. If a lock is not granted all answers are errLocked, and nothing was applied.
func (s *Store) swapSome(wait, ctx context.Context, requests []swap, lock func(int) string) []answer {
	var answers []answer
	err := s.steps.do(wait, func(c conn) error {
		rows, now, err := lockRows(wait, c, requests, lock)
		if err != nil {
			return err
		}
		if err := wait.Err(); err != nil {
			return fmt.Errorf("%w: %w", err, errRollback)
		}
		var changed []*lockedRow
		answers, changed = decide(requests, rows, now)
		if len(changed) == 0 {
			return errRollback
		}
		statements := updates(changed)
		if announced := announcements(requests, answers); len(announced) > 0 {
			statements = append(statements, announced...)
		}
		failpoint.Hit("mysql.decided")
		return c.script(ctx, append(statements, statement{sql: `COMMIT`})...)
	})
	switch {
	case err == nil, errors.Is(err, errRollback) && wait.Err() == nil:
		return answers
	case isLocked(err), isDeadlock(err):
		err = errLocked
	}
	answers = make([]answer, len(requests))
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// lockedRow is a row that the transaction has locked: as it was read, and as the swaps of
// the batch have changed it.
type lockedRow struct {
	row
	rec     retrysafe.Record
	err     error // the record cannot be read
	changed bool
	whole   bool // head and checkpoint are to be written too
}

// lockRows begins a transaction and locks the rows of the requests. Now is the server's
// time when all locks were granted.
func lockRows(ctx context.Context, c conn, requests []swap, lock func(int) string) (rows map[id]*lockedRow, now int64, err error) {
	rows = make(map[id]*lockedRow, len(requests))
	ids := make([]id, 0, len(requests))
	for _, q := range requests {
		if _, twice := rows[q.id]; !twice {
			rows[q.id] = nil
			ids = append(ids, q.id)
		}
	}
	slices.SortFunc(ids, func(a, b id) int { return bytes.Compare(a[:], b[:]) })
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i][:]
	}
	begun := time.Now()
	if err := c.script(ctx, statement{sql: begin}, lockStatement(lock(len(ids)), args, rows, &now)); err != nil {
		return nil, 0, err
	}
	err = refreshNow(ctx, c, begun, &now)
	return rows, now, err
}

// lockStatement locks and reads rows. Now becomes the latest time of a row.
func lockStatement(query string, args []any, rows map[id]*lockedRow, now *int64) statement {
	return statement{sql: query, args: args, each: func(scan func(...any) error) error {
		at := new(lockedRow)
		if err := at.scan(scan); err != nil {
			return err
		}
		at.rec, at.err = at.decode()
		rows[at.id], *now = at, max(*now, at.now)
		return nil
	}}
}

// slow is from when on a statement may have waited for a lock, so that the time in its
// result is not that of the lock.
const slow = 20 * time.Millisecond

// refreshNow asks for the time again if the statement that was begun at a time may have
// waited for a lock.
func refreshNow(ctx context.Context, db execer, begun time.Time, now *int64) error {
	if time.Since(begun) < slow {
		return nil
	}
	return runOn(ctx, db, one(selectNow, now))
}

// decide applies the swaps to the rows, in their order. A swap sees what those before it
// did to the same key.
func decide(requests []swap, rows map[id]*lockedRow, now int64) (answers []answer, changed []*lockedRow) {
	answers = make([]answer, len(requests))
	for i, q := range requests {
		at := rows[q.id]
		switch {
		case at == nil:
			answers[i].Err = retrysafe.ErrNotFound
			continue
		case at.err != nil:
			answers[i].Err = at.err
			continue
		case at.rec.Ref != q.w.Ref:
			answers[i].Err = errOther
			continue
		}
		if answers[i].Err = refusal(&at.rec, q.w); answers[i].Err == nil {
			at.rec = swapped(&at.rec, q.w, now)
			at.whole = at.whole || q.w.Overwrite || q.w.SetCheckpoint
			if !at.changed {
				at.changed = true
				changed = append(changed, at)
			}
		}
		answers[i].Value = at.rec
		answers[i].Value.ReadAt = fromMicros(max(now, at.rec.UpdatedAt.UnixMicro()))
	}
	return answers, changed
}

// updates returns the statements that write the changed rows, in the order of their ids.
func updates(changed []*lockedRow) (statements []statement) {
	slices.SortFunc(changed, func(a, b *lockedRow) int { return bytes.Compare(a.id[:], b.id[:]) })
	var brief, whole []any
	for _, at := range changed {
		if at.whole {
			whole = append(whole, updateArgs(at.id, &at.rec, true)...)
		} else {
			brief = append(brief, updateArgs(at.id, &at.rec, false)...)
		}
	}
	if len(brief) > 0 {
		statements = append(statements, statement{sql: updateKeys(len(brief)/updateColumns, updateBrief), args: brief})
	}
	if len(whole) > 0 {
		statements = append(statements, statement{sql: updateKeys(len(whole)/updateColumns, updateWhole), args: whole})
	}
	return statements
}

// updateArgs are the values of a row. Without whole the statement does not use those of
// head and checkpoint.
func updateArgs(key id, r *retrysafe.Record, whole bool) []any {
	head, checkpoint := []byte{}, []byte{}
	if whole {
		head, checkpoint = appendHead(nil, r), appendCheckpoint(checkpoint, r)
	}
	return []any{
		key[:], r.Owner[:], r.Revision, r.Deadline.UnixMicro(), r.CreatedAt.UnixMicro(), r.UpdatedAt.UnixMicro(),
		int64(r.State), head, appendTail(nil, r), checkpoint,
	}
}

// swapAlone sends one swap by itself, and waits for a transaction that has locked its
// key. It returns when ctx ends; a commit that has begun then goes on.
func (s *Store) swapAlone(ctx context.Context, q swap) (retrysafe.Record, error) {
	if err := ctx.Err(); err != nil {
		return retrysafe.Record{}, err
	}
	values, ok := retrysafe.DeadlineOnly(ctx)
	if !ok {
		values = context.WithoutCancel(ctx)
	}
	wait, stop := context.WithCancel(values) // the engine reuses ctx when this step has returned
	done := make(chan answer, 1)
	s.alone.Go(func() {
		defer stop()
		for {
			got := s.commitAlone(wait, q)
			if !errors.Is(got.Err, errLocked) || wait.Err() != nil {
				done <- got
				return
			}
		}
	})
	select {
	case got := <-done:
		return got.Value, got.Err
	case <-ctx.Done():
		stop()
		return retrysafe.Record{}, ctx.Err()
	}
}

// lockPatience bounds one wait for the lock of a key.
const lockPatience = 30 * time.Second

func (s *Store) commitAlone(wait context.Context, q swap) answer {
	locking, cancel := context.WithTimeout(wait, lockPatience)
	defer cancel()
	ctx, end := context.WithTimeout(context.WithoutCancel(wait), lockPatience+s.timeout)
	defer end()
	got := s.swapSome(locking, ctx, []swap{q}, awaitKeys)[0]
	if locking.Err() != nil && wait.Err() == nil && got.Err != nil && errors.Is(got.Err, context.DeadlineExceeded) {
		got.Err = fmt.Errorf("another transaction has the key locked for longer than %v: %w", lockPatience, got.Err)
	}
	return got
}
