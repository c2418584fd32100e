package pgstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
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

// text is the id as every driver can send it.
func (i id) text() string { return hex.EncodeToString(i[:]) }

func (i id) compare(o id) int { return bytes.Compare(i[:], o[:]) }

// layout is the version of head and tail. Rows carry it, so that a program meets
// a layout it does not know with a refusal.
const layout = 1

var checksums = crc32.MakeTable(crc32.Castagnoli)

// appendHead appends what is fixed for one attempt. The checksum covers the id.
func appendHead(b []byte, i id, r *retrysafe.Record) []byte {
	start := len(b)
	b = append(b, layout, r.Fingerprint.Alg)
	b = append(b, r.Fingerprint.Sum[:]...)
	b = binary.AppendVarint(b, int64(r.Attempt))
	b = fields.AppendName(b, r.Scope)
	b = fields.AppendName(b, r.Key)
	b = fields.Append(b, r.Operation)
	b = fields.AppendOptional(b, r.KeyText)
	b = fields.AppendOptional(b, r.Request)
	return appendSum(b, b[start:], i[:])
}

// wholeSeconds is set beside the lapse policy where the retention is in seconds
// instead of nanoseconds.
const wholeSeconds = 0x80

// appendTail appends what each swap sets. The checksum covers the state.
func appendTail(b []byte, r *retrysafe.Record) []byte {
	start := len(b)
	lapse, retain := byte(r.Lapse), int64(r.Retain)
	if r.Retain%time.Second == 0 {
		lapse, retain = lapse|wholeSeconds, int64(r.Retain/time.Second)
	}
	b = append(b, layout, r.Version, lapse, byte(r.Effects))
	b = binary.AppendVarint(b, retain)
	b = fields.Append(b, r.ProviderRef)
	b = fields.Append(b, r.Reason)
	if r.Result != nil {
		b = retrysafe.AppendResult(b, r.Result)
	}
	return appendSum(b, b[start:], []byte{byte(r.State)})
}

// appendCheckpoint appends nothing for a zero checkpoint.
func appendCheckpoint(b []byte, c retrysafe.Checkpoint) []byte {
	if c.IsZero() {
		return b
	}
	start := len(b)
	b = fields.Append(b, c.Phase)
	b = fields.AppendOptional(b, c.Data)
	return appendSum(b, b[start:], nil)
}

func appendSum(b, over, with []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Update(crc32.Checksum(with, checksums), checksums, over))
}

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
	head, err := open("head", w.head, w.id[:])
	if err != nil {
		return retrysafe.Record{}, err
	}
	tail, err := open("tail", w.tail, []byte{byte(w.state)})
	if err != nil {
		return retrysafe.Record{}, err
	}
	r.Fingerprint.Alg = head.Byte()
	copy(r.Fingerprint.Sum[:], head.Take(32))
	r.Attempt = int(head.Varint())
	r.Scope, r.Key, r.Operation = head.Name(), head.Name(), string(head.Bytes())
	r.KeyText, r.Request = head.Optional(), head.Optional()

	r.Version = tail.Byte()
	lapse := tail.Byte()
	unit := time.Nanosecond
	if lapse&wholeSeconds != 0 {
		unit = time.Second
	}
	r.Lapse, r.Effects, r.Retain = retrysafe.Lapse(lapse&^wholeSeconds), retrysafe.Effects(tail.Byte()), time.Duration(tail.Varint()*int64(unit))
	r.ProviderRef, r.Reason = string(tail.Bytes()), string(tail.Bytes())
	if !tail.Bad && len(tail.Rest) > 0 {
		if r.Result, err = retrysafe.DecodeResult(tail.Rest); err != nil {
			return retrysafe.Record{}, err
		}
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

// open checks layout and checksum of a part and returns a reader of its fields.
func open(part string, b, with []byte) (fields.Reader, error) {
	if len(b) > 0 && b[0] != layout {
		return fields.Reader{}, fmt.Errorf("%w: its %s has layout %d, this program reads %d; upgrade the program", retrysafe.ErrUnreadable, part, b[0], layout)
	}
	body, err := checked(part, b, with)
	if err != nil {
		return fields.Reader{}, err
	}
	return fields.Reader{Rest: body[1:]}, nil
}

// checked returns a part without its checksum if that is right.
func checked(part string, b, with []byte) ([]byte, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: its %s has %d bytes", retrysafe.ErrUnreadable, part, len(b))
	}
	body := b[:len(b)-4]
	if crc32.Update(crc32.Checksum(with, checksums), checksums, body) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: the checksum of its %s does not match; it is damaged", retrysafe.ErrUnreadable, part)
	}
	return body, nil
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

// keepOf is the file that r belongs in: for how many seconds its answer will be
// kept, or is.
func keepOf(r *retrysafe.Record) int32 {
	d := r.Retain
	if r.State.Forgettable() {
		d = r.Term
	}
	return int32(min(max(d, 0)/time.Second, math.MaxInt32))
}
