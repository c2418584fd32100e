package sqlitestore

import (
	"bytes"
	"errors"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// Most keys are reserved and settled by the same process, one shortly after the other. So
// the store remembers the rows that it has reserved, as it has written them, and does not
// read them again to settle them. The update compares the row with what is remembered,
// byte by byte: if another process, a transaction or a restored backup has changed the row
// since, the update finds no row, the transaction is rolled back, and the batch begins
// again and reads. So what is remembered saves a read and decides nothing.

const (
	// maxReserved is how many rows are remembered. If there are more, all are forgotten.
	maxReserved = 4096
	// maxReservedRow is how many bytes a record has that is remembered.
	maxReservedRow = 1 << 10
)

// errStale says that a row is not as it was remembered. The transaction is rolled back.
var errStale = errors.New("sqlitestore: a row was changed by another writer")

// reservedRows are the rows that this process has reserved and not settled. The zero value
// is ready for use.
type reservedRows struct {
	mu   sync.Mutex
	rows map[id]reservedRow
}

// reservedRow is a row as it was written last. Its record is never changed.
type reservedRow struct {
	number int64
	rec    []byte
}

// assume fills in the rows of a batch that are known, for requests that will be granted if
// the row is as it was. All other rows are read.
func (k *reservedRows) assume(b *batch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, q := range b.requests {
		if q.create || b.rowOf(i) != &q.row {
			continue
		}
		if known, ok := k.rows[q.row.id]; ok {
			q.row.assumed = known
		}
	}
	for i, q := range b.requests { // what several requests are about is read
		if at := b.rowOf(i); at != &q.row {
			at.assumed = reservedRow{}
		}
	}
}

// take sets the row as it is assumed to be, and reports whether the request is granted on
// that.
func (at *row) take(q *request) bool {
	known := at.assumed
	rec, err := storekit.DecodeRecord(known.rec)
	if err != nil || rec.Ref != q.w.Ref || rec.Fence() != q.w.Expect {
		return false
	}
	*at = row{id: at.id, number: known.number, exists: true, rec: rec, assumed: known}
	return true
}

// distrust makes the batch read all its rows.
func (b *batch) distrust() {
	for _, at := range b.rows {
		at.assumed = reservedRow{}
	}
}

// note remembers the rows that a committed batch has left reserved, and forgets the others
// that it has changed. If the batch failed, it forgets all of them.
func (k *reservedRows) note(b *batch, committed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, at := range b.rows {
		switch {
		case !at.changed:
		case !committed || at.kept.rec == nil || at.kept.number == 0:
			delete(k.rows, at.id)
		default:
			if len(k.rows) >= maxReserved {
				clear(k.rows)
			}
			if k.rows == nil {
				k.rows = make(map[id]reservedRow)
			}
			k.rows[at.id] = at.kept
		}
	}
}

// forget forgets the row of a key that a transaction of the caller's is about to change.
func (k *reservedRows) forget(key id) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.rows, key)
}

// keep copies the encoding of a row that is reserved, for note.
func (at *row) keep(rec []byte) {
	if at.rec.State == retrysafe.StateInProgress && len(rec) <= maxReservedRow {
		at.kept = reservedRow{at.number, bytes.Clone(rec)}
	}
}
