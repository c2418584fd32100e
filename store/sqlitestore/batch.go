package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe/internal/pool"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// batch is requests and their rows, each row once.
type batch struct {
	requests []*queued
	answers  []answer
	rows     []*row
	unread   []*row // those of rows that have to be read
	of       []int  // for each request, the index of its row
	known    map[id]int

	keys, inserts, updates []any
	swaps                  []any  // updates of rows that were not read
	inserted               []*row // the rows of inserts
	buf                    []byte // encoded records; a driver copies what it is given
}

var batches = pool.Of[batch]{New: func() *batch { return &batch{known: make(map[id]int)} }}

// newBatch returns a batch of requests. Requests for one key share the row of the
// first of them.
func newBatch(requests []*queued) *batch {
	b := batches.Get()
	b.requests, b.answers = requests, make([]answer, len(requests))
	for _, q := range requests {
		n, known := b.known[q.row.id]
		if !known {
			n = len(b.rows)
			b.known[q.row.id] = n
			b.rows = append(b.rows, &q.row)
		}
		b.of = append(b.of, n)
	}
	return b
}

func (b *batch) release() {
	b.drop()
	b.requests, b.answers, b.keys = nil, nil, emptied(b.keys)
	b.rows, b.unread, b.of = emptied(b.rows), emptied(b.unread), b.of[:0]
	clear(b.known)
	if cap(b.buf) <= 2*maxEncoded {
		batches.Put(b)
	}
}

// drop discards what is encoded to be written.
func (b *batch) drop() {
	b.inserts, b.updates, b.buf = emptied(b.inserts), emptied(b.updates), b.buf[:0]
	b.swaps, b.inserted = emptied(b.swaps), emptied(b.inserted)
}

func emptied[T any](s []T) []T {
	clear(s)
	return s[:0]
}

func (b *batch) rowOf(i int) *row { return b.rows[b.of[i]] }

// changed reports whether there is anything to write.
func (b *batch) changed() bool {
	return slices.ContainsFunc(b.rows, func(at *row) bool { return at.changed })
}

// answer sets the answer to request i: err, and the record as it is now if there is
// one. Only one request of a batch can change a row. A request that the row refused
// before that change may just as well have come after it, so it may be shown the
// changed record. A Create that recognised itself was not refused: it gets a copy of
// the record that it found.
func (b *batch) answer(i int, now time.Time, err error) {
	b.answers[i] = answer{Err: err}
	at, own := b.rowOf(i), &b.requests[i].row
	if !at.exists || at.err != nil {
		return
	}
	at.rec.ReadAt = now
	switch {
	case own != at:
		own.rec = at.rec
	case err == nil && !at.changed:
		found := at.rec
		b.answers[i].Value = &found
		return
	}
	b.answers[i].Value = &own.rec
}

// answered returns the answers. If err is not nil, it replaces the answers of the
// requests whose rows were to change, and of those that have no answer yet.
func (b *batch) answered(err error) []answer {
	if err == nil {
		return b.answers
	}
	for i, a := range b.answers {
		if b.rowOf(i).changed || a.Value == nil && a.Err == nil {
			b.answers[i] = answer{Err: err}
		}
	}
	return b.answers
}

// read reads all rows but those that are assumed.
func (b *batch) read(ctx context.Context, tx execer) error {
	b.unread = b.unread[:0]
	for i, q := range b.requests {
		at := b.rowOf(i)
		if at != &q.row || at.assumed.rec != nil && at.take(&q.request) {
			continue
		}
		*at = row{id: at.id}
		b.unread = append(b.unread, at)
	}
	for some := range slices.Chunk(b.unread, chunk) {
		b.keys = b.keys[:0]
		for _, at := range some {
			b.keys = append(b.keys, at.id[:])
		}
		for len(b.keys) < size(len(some)) {
			b.keys = append(b.keys, nil) // matches no row
		}
		if err := b.scan(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) scan(ctx context.Context, tx execer) error {
	rows, err := tx.QueryContext(ctx, selectKeys[len(b.keys)], b.keys...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var number int64
	var key sql.RawBytes
	for rows.Next() {
		var rec []byte
		if err := rows.Scan(&number, &key, &rec); err != nil {
			return err
		}
		if len(key) != len(id{}) {
			return errors.New("an id of another size")
		}
		at := b.rows[b.known[id(key)]]
		at.number, at.exists = number, true
		at.rec, at.err = storekit.DecodeRecord(rec)
	}
	return rows.Err()
}

// maxEncoded is how many bytes of encoded records are collected before they are
// written. A single record may be larger.
const maxEncoded = 1 << 20

// write stores the rows that have changed.
func (b *batch) write(ctx context.Context, tx execer) error {
	for _, at := range b.rows {
		if !at.changed {
			continue
		}
		start := len(b.buf)
		b.buf = storekit.AppendRecord(b.buf, &at.rec)
		rec := b.buf[start:len(b.buf):len(b.buf)]
		due := dueOf(&at.rec)
		switch {
		case at.number == 0:
			b.inserts, b.inserted = append(b.inserts, at.id[:], due, rec), append(b.inserted, at)
		case at.assumed.rec != nil:
			b.swaps = append(b.swaps, due, rec, at.number, at.id[:], at.assumed.rec)
		default:
			b.updates = append(b.updates, due, rec, at.number)
		}
		at.keep(rec)
		if len(b.buf) >= maxEncoded {
			if err := b.flush(ctx, tx); err != nil {
				return err
			}
		}
	}
	if err := b.flush(ctx, tx); err != nil {
		return err
	}
	return b.announce(ctx, tx)
}

func (b *batch) flush(ctx context.Context, tx execer) error {
	defer b.drop()
	rows := b.inserted
	err := eachChunk(insertKeys, 3, b.inserts, func(n int, query string, args []any) error {
		res, err := execRows(ctx, tx, n, query, args...)
		if err != nil {
			return err
		}
		last, err := res.LastInsertId()
		for i, at := range rows[:n] { // SQLite numbers the rows of a statement in their order
			at.kept.number = last - int64(n-1-i)
		}
		rows = rows[n:]
		return err
	})
	if err != nil {
		return err
	}
	if err := execMany(ctx, tx, updateKeys, 3, b.updates); err != nil {
		return err
	}
	if err = execMany(ctx, tx, swapKeys, 5, b.swaps); errors.Is(err, errFewer) {
		return errStale
	}
	return err
}

// execMany runs a statement that writes rows of so many columns, in chunks, until all
// of args are written.
func execMany(ctx context.Context, tx execer, statement sized, columns int, args []any) error {
	return eachChunk(statement, columns, args, func(n int, query string, args []any) error { return exec(ctx, tx, n, query, args...) })
}

// eachChunk divides args, rows of so many columns, into chunks that there is a statement
// for.
func eachChunk(statement sized, columns int, args []any, do func(n int, query string, args []any) error) error {
	for len(args) > 0 {
		rows := len(args) / columns
		n := size(rows)
		if n > rows {
			n /= 2
		}
		if err := do(n, statement[n], args[:n*columns]); err != nil {
			return err
		}
		args = args[n*columns:]
	}
	return nil
}

// errFewer says that a statement has written fewer rows than it was to.
var errFewer = errors.New("sqlitestore: rows are missing")

// exec runs a statement that writes n rows.
func exec(ctx context.Context, tx execer, n int, query string, args ...any) error {
	_, err := execRows(ctx, tx, n, query, args...)
	return err
}

// execRows is exec with the result.
func execRows(ctx context.Context, tx execer, n int, query string, args ...any) (sql.Result, error) {
	res, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("write keys: %w", err)
	}
	if wrote, err := res.RowsAffected(); err != nil || wrote != int64(n) {
		return nil, errors.Join(fmt.Errorf("write keys: %d of %d rows: %w", wrote, n, errFewer), err)
	}
	return res, nil
}
