package pgstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
)

// id is the primary key of a ref: a hash. Its first four bytes are of the scope alone, so
// that the keys of one scope are neighbours; the rest is of scope and key, each behind
// its length. If two refs have the same id the second is refused: the row holds the
// texts, and they are compared.
type id [16]byte

func idOf(ref retrysafe.Ref) (out id) {
	var space [256]byte
	b := binary.BigEndian.AppendUint32(space[:0], uint32(len(ref.Scope)))
	b = append(b, ref.Scope...)
	sum := sha256.Sum256(b)
	copy(out[:4], sum[:])
	sum = sha256.Sum256(append(b, ref.Key...))
	copy(out[4:], sum[:])
	return out
}

// ID returns the primary key of a ref's row, a uuid. It never changes. A table of the
// caller's may refer to a key by it.
func ID(ref retrysafe.Ref) [16]byte { return idOf(ref) }

// lock is the number of the key's advisory lock.
func (i id) lock() int64 { return int64(binary.BigEndian.Uint64(i[8:])) }

// text is the id in a form that every driver can send.
func (i id) text() string { return hex.EncodeToString(i[:]) }

func (i id) compare(o id) int { return bytes.Compare(i[:], o[:]) }

// A row is one row of the table of keys, as the database returned it.
type row struct {
	id                          id
	owner                       retrysafe.Owner
	revision, deadline, created int64
	state                       int16
	head, tail, checkpoint      []byte
	now                         int64
}

// record decodes a row. If it cannot be decoded the error is ErrUnreadable: the key is
// refused, and its operation never run again.
func (w *row) record() (retrysafe.Record, error) {
	r := retrysafe.Record{
		State: retrysafe.State(w.state), Owner: w.owner, Revision: w.revision,
		Deadline: fromMicros(w.deadline), CreatedAt: fromMicros(w.created), UpdatedAt: fromMicros(w.revision), ReadAt: fromMicros(w.now),
	}
	if w.state < 0 || w.state > math.MaxUint8 {
		return retrysafe.Record{}, fmt.Errorf("%w: its state is %d", retrysafe.ErrUnreadable, w.state)
	}
	first, head, err := open("head", w.head, w.id[:])
	if err != nil {
		return retrysafe.Record{}, err
	}
	decodeHead(&r, first, &head)
	first, tail, err := open("tail", w.tail, []byte{byte(w.state)})
	if err == nil {
		err = decodeTail(&r, first, &tail)
	}
	if err != nil {
		return retrysafe.Record{}, err
	}
	var at fields.Reader
	if len(w.checkpoint) > 0 {
		if at.Rest, err = checked("checkpoint", w.checkpoint, nil); err != nil {
			return retrysafe.Record{}, err
		}
		r.Checkpoint.Phase, r.Checkpoint.Data = string(at.Bytes()), at.Optional()
	}
	if head.Bad || tail.Bad || at.Bad || len(head.Rest) > 0 || len(at.Rest) > 0 {
		return retrysafe.Record{}, fmt.Errorf("%w: its fields do not add up", retrysafe.ErrUnreadable)
	}
	return r, nil
}

// of decodes a row that must be ref's.
func (w *row) of(ref retrysafe.Ref) (retrysafe.Record, error) {
	r, err := w.record()
	if err == nil && r.Ref != ref {
		return retrysafe.Record{}, fmt.Errorf("%w: another key has the same hash", retrysafe.ErrUnreadable)
	}
	return r, err
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// termOf is how long after the write the record is due, in microseconds.
func termOf(w *retrysafe.Write) int64 { return w.Term.Microseconds() }
