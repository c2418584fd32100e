package retrysafe

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"
)

// The encoding of a record, for stores that keep it as bytes: a version, the
// fields in a fixed order (numbers as varints, texts and bytes behind their
// length), and a checksum over all of it. What does not decode is
// [ErrUnreadable]: refused, never run again.

// encodingVersion is the version of the byte layout. It differs from
// [RecordVersion], which says what the fields mean.
const encodingVersion = 1

var checksums = crc32.MakeTable(crc32.Castagnoli)

// AppendRecord appends the encoding of every stored field of r to b. Fields
// that are in-only or belong to one read (Claim, Term, ReadAt) are left out.
func AppendRecord(b []byte, r *Record) []byte {
	start := len(b)
	b = append(b, encodingVersion, r.Version, byte(r.State), byte(r.Lapse), byte(r.Effects), r.Fingerprint.Alg)
	b = append(b, r.Fingerprint.Sum[:]...)
	b = append(b, r.Owner[:]...)
	for _, s := range [...]string{r.Scope, r.Key, r.Operation, r.ProviderRef, r.Reason, r.Checkpoint.Phase} {
		b = appendBytes(b, s)
	}
	for _, p := range [...][]byte{r.KeyText, r.Request, r.Checkpoint.Data} {
		b = appendOptional(b, p)
	}
	for _, n := range [...]int64{int64(r.Attempt), int64(r.Retain), r.Revision, micros(r.Deadline), micros(r.CreatedAt), micros(r.UpdatedAt)} {
		b = binary.AppendVarint(b, n)
	}
	if r.Result == nil {
		b = append(b, 0)
	} else {
		b = AppendResult(append(b, 1), r.Result)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], checksums))
}

// DecodeRecord is the inverse of [AppendRecord]. It shares memory with b.
func DecodeRecord(b []byte) (Record, error) {
	if len(b) < 5 {
		return Record{}, fmt.Errorf("%w: %d bytes are too few", ErrUnreadable, len(b))
	}
	if b[0] != encodingVersion {
		return Record{}, fmt.Errorf("%w: it is encoded as version %d, this program reads %d; upgrade the program", ErrUnreadable, b[0], encodingVersion)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, checksums) != sum {
		return Record{}, fmt.Errorf("%w: its checksum does not match; it is damaged", ErrUnreadable)
	}
	d := decoder{rest: body[1:]}
	var r Record
	r.Version = d.byte()
	r.State, r.Lapse, r.Effects = State(d.byte()), Lapse(d.byte()), Effects(d.byte())
	r.Fingerprint.Alg = d.byte()
	copy(r.Fingerprint.Sum[:], d.take(32))
	copy(r.Owner[:], d.take(16))
	for _, s := range [...]*string{&r.Scope, &r.Key, &r.Operation, &r.ProviderRef, &r.Reason, &r.Checkpoint.Phase} {
		*s = string(d.bytes())
	}
	for _, p := range [...]*[]byte{&r.KeyText, &r.Request, &r.Checkpoint.Data} {
		*p = d.optional()
	}
	r.Attempt, r.Retain, r.Revision = int(d.varint()), time.Duration(d.varint()), d.varint()
	for _, t := range [...]*time.Time{&r.Deadline, &r.CreatedAt, &r.UpdatedAt} {
		*t = fromMicros(d.varint())
	}
	if d.byte() == 1 {
		r.Result = d.result()
	}
	if d.bad || len(d.rest) != 0 {
		return Record{}, fmt.Errorf("%w: its fields do not add up", ErrUnreadable)
	}
	return r, nil
}

// AppendResult appends the encoding of res to b. Equal results have equal
// encodings.
func AppendResult(b []byte, res *Result) []byte {
	b = binary.AppendVarint(b, int64(res.Status))
	omitted := byte(0)
	if res.Omitted {
		omitted = 1
	}
	b = append(b, omitted)
	b = binary.AppendUvarint(b, uint64(len(res.Header)))
	for _, name := range slices.Sorted(maps.Keys(res.Header)) {
		b = appendBytes(b, name)
		b = binary.AppendUvarint(b, uint64(len(res.Header[name])))
		for _, v := range res.Header[name] {
			b = appendBytes(b, v)
		}
	}
	return appendBytes(b, res.Body)
}

// DecodeResult is the inverse of [AppendResult]. It shares memory with b.
func DecodeResult(b []byte) (*Result, error) {
	d := decoder{rest: b}
	res := d.result()
	if d.bad || len(d.rest) != 0 {
		return nil, fmt.Errorf("%w: its result does not add up", ErrUnreadable)
	}
	return res, nil
}

func appendBytes[T string | []byte](b []byte, p T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(p))), p...)
}

// appendOptional keeps nil apart from empty: a nil checkpoint is none at all.
func appendOptional(b, p []byte) []byte {
	if p == nil {
		return append(b, 0)
	}
	return appendBytes(append(b, 1), p)
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// decoder takes fields off the front of rest. After the first that is not there
// bad is set and every field is zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	p := d.rest[:n:n]
	d.rest = d.rest[n:]
	return p
}

func (d *decoder) byte() byte {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.bad || size <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) varint() int64 {
	n := d.uvarint()
	if n&1 != 0 {
		return ^int64(n >> 1)
	}
	return int64(n >> 1)
}

func (d *decoder) bytes() []byte { return d.take(d.uvarint()) }

func (d *decoder) optional() []byte {
	if d.byte() == 0 {
		return nil
	}
	return d.bytes()
}

// count reads how many of something follow, each at least one byte long, so
// that a damaged count cannot ask for more memory than there are bytes.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) result() *Result {
	res := &Result{Status: int(d.varint()), Omitted: d.byte() == 1}
	if names := d.count(); names > 0 {
		res.Header = make(map[string][]string, names)
		for range names {
			name := string(d.bytes())
			values := make([]string, d.count())
			for i := range values {
				values[i] = string(d.bytes())
			}
			if _, twice := res.Header[name]; twice || d.bad {
				d.bad = true
				return res
			}
			res.Header[name] = values
		}
	}
	res.Body = d.bytes()
	return res
}
