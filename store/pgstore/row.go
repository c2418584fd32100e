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

// id is the primary key of a ref. Its first four bytes are of the scope alone, so
// that the keys of one scope are neighbours; the rest is of scope and key, each
// behind its length. Of two refs with one id the second is refused, never mixed
// up: the row holds the texts.
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

// ID is the identity of a key in the table: its primary key, a uuid, and the same
// for ever. A table of the caller's may refer to a key by it.
func ID(ref retrysafe.Ref) [16]byte { return idOf(ref) }

// lock is the id as the key of an advisory lock.
func (i id) lock() int64 { return int64(binary.BigEndian.Uint64(i[8:])) }

// place is where in its file a row is that waits for a worker: anywhere, by its
// hash, so that no tenant's work is together and a page is read alone.
func (i id) place() int32 { return int32(int64(binary.BigEndian.Uint32(i[12:])) + math.MinInt32) }

// text is the id as every driver can send it.
func (i id) text() string { return hex.EncodeToString(i[:]) }

func (i id) compare(o id) int { return bytes.Compare(i[:], o[:]) }

// A row is what is stored of a key, as the database returned it.
type row struct {
	id                          id
	owner                       retrysafe.Owner
	revision, deadline, created int64
	state                       int16
	head, tail, checkpoint      []byte
	now                         int64
}

// record decodes a row. What does not decode is ErrUnreadable: refused, never
// run again.
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

// of is the row's record if it is ref's.
func (w *row) of(ref retrysafe.Ref) (retrysafe.Record, error) {
	r, err := w.record()
	if err == nil && r.Ref != ref {
		return retrysafe.Record{}, fmt.Errorf("%w: another key has the same hash", retrysafe.ErrUnreadable)
	}
	return r, err
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// termOf is how long r is to last from now, in microseconds.
func termOf(r *retrysafe.Record) int64 { return r.Term.Microseconds() }

// The files of rows that are found by their state, beside those of every retention.
// A row that enters or leaves one is moved, which is rare; a settlement moves none.
const (
	keepAccepted = math.MaxInt32 - 1
	keepUnknown  = math.MaxInt32
	keepLongest  = keepAccepted - 1
)

// keepOf is the file that r belongs in: for how many seconds its answer will be
// kept, or is, unless it waits for a worker or is unknown.
func keepOf(r *retrysafe.Record) int32 {
	d := r.Retain
	switch {
	case r.State == retrysafe.StateAccepted:
		return keepAccepted
	case r.State == retrysafe.StateUnknown:
		return keepUnknown
	case r.State.Forgettable():
		d = r.Term
	}
	return int32(min(max(d, 0)/time.Second, keepLongest))
}
