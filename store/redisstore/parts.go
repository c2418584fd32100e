package redisstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// A record is one string: meta, body, meta. The meta has what scripts read and set:
//
//	revision, deadline, created, updated (8 bytes each; times in microseconds since 1970), state (1)
//
// It is there twice, which is its checksum. The body is the client's, and scripts compare
// only how it begins:
//
//	owner (16), length of the head (4), head, length of the checkpoint (4), checkpoint, tail, checksum (4)
//
// The head stays the same for one attempt, the checkpoint for most writes, and the tail is
// new with each write.
const (
	metaLength = 33
	ownerEnd   = 16
	sumLength  = 4
)

// layout is the version of head, checkpoint and tail, their first byte. A program refuses a
// layout that it does not know.
const layout = 1

var sums = crc32.MakeTable(crc32.Castagnoli)

// A body is that of a record, and where its parts end.
type body struct {
	bytes      []byte // behind what the caller has appended to before
	head       int    // where owner and head end
	checkpoint int    // and the checkpoint
}

// appendBody appends the body of a record to b. Kept, if not nil, is how the body that is
// stored begins, and is taken as it is: up to the end of the head, or of the checkpoint.
func appendBody(b []byte, r *retrysafe.Record, owner retrysafe.Owner, kept *body, setCheckpoint bool) body {
	from := len(b)
	at := body{}
	if kept == nil {
		b = appendPart(append(b, owner[:]...), func(b []byte) []byte { return appendHead(b, r) })
	} else {
		b = append(b, kept.bytes[:kept.head]...)
	}
	at.head = len(b) - from
	if kept == nil || setCheckpoint {
		b = appendPart(b, func(b []byte) []byte { return appendCheckpoint(b, r.Checkpoint) })
	} else {
		b = append(b, kept.bytes[kept.head:kept.checkpoint]...)
	}
	at.checkpoint = len(b) - from
	b = appendTail(b, r)
	at.bytes = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[from:], sums))
	return at
}

// appendPart appends a part behind its length.
func appendPart(b []byte, part func([]byte) []byte) []byte {
	from := len(b)
	b = part(append(b, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(b[from:], uint32(len(b)-from-4))
	return b
}

// splitBody finds the parts of a body whose checksum is right.
func splitBody(b []byte) (at body, err error) {
	bad := fmt.Errorf("%w: its checksum does not match; it is damaged", retrysafe.ErrUnreadable)
	if len(b) < ownerEnd+8+sumLength {
		return at, bad
	}
	text := b[:len(b)-sumLength]
	if crc32.Checksum(text, sums) != binary.BigEndian.Uint32(b[len(text):]) {
		return at, bad
	}
	at = body{bytes: text, head: ownerEnd}
	for _, end := range []*int{&at.head, &at.checkpoint} {
		from := max(at.head, at.checkpoint)
		if len(text) < from+4 || uint64(len(text)-from-4) < uint64(binary.BigEndian.Uint32(text[from:])) {
			return at, fmt.Errorf("%w: its parts do not add up", retrysafe.ErrUnreadable)
		}
		*end = from + 4 + int(binary.BigEndian.Uint32(text[from:]))
	}
	return at, nil
}

func appendHead(b []byte, r *retrysafe.Record) []byte {
	b = append(b, layout, r.Fingerprint.Alg)
	b = append(b, r.Fingerprint.Sum[:]...)
	b = binary.AppendVarint(b, int64(r.Attempt))
	b = fields.AppendName(b, r.Scope)
	b = fields.AppendName(b, r.Key)
	b = fields.Append(b, r.Operation)
	b = fields.AppendOptional(b, r.KeyText)
	return fields.AppendOptional(b, r.Request)
}

func decodeHead(r *retrysafe.Record, b []byte) error {
	d, err := open("head", b)
	if err != nil {
		return err
	}
	r.Fingerprint.Alg = d.Byte()
	copy(r.Fingerprint.Sum[:], d.Take(32))
	r.Attempt = int(d.Varint())
	r.Scope, r.Key, r.Operation = d.Name(), d.Name(), string(d.Bytes())
	r.KeyText, r.Request = d.Optional(), d.Optional()
	return ended("head", &d)
}

// appendCheckpoint appends a checkpoint: nothing if it is zero.
func appendCheckpoint(b []byte, c retrysafe.Checkpoint) []byte {
	if c.IsZero() {
		return b
	}
	return fields.AppendOptional(fields.Append(append(b, layout), c.Phase), c.Data)
}

func decodeCheckpoint(r *retrysafe.Record, b []byte) error {
	if len(b) == 0 {
		r.Checkpoint = retrysafe.Checkpoint{}
		return nil
	}
	d, err := open("checkpoint", b)
	if err != nil {
		return err
	}
	r.Checkpoint = retrysafe.Checkpoint{Phase: string(d.Bytes()), Data: d.Optional()}
	return ended("checkpoint", &d)
}

func appendTail(b []byte, r *retrysafe.Record) []byte {
	b = append(b, layout, r.Version, byte(r.Lapse)-1, byte(r.Effects)-1) // policies are stored without their default, which no record has
	b = binary.AppendVarint(b, int64(r.Retain))
	b = fields.Append(fields.Append(b, r.ProviderRef), r.Reason)
	b = fields.Append(b, storekit.AppendInquiry(nil, &r.Inquiry))
	if r.Result != nil {
		b = storekit.AppendResult(b, r.Result)
	}
	return b
}

func decodeTail(r *retrysafe.Record, b []byte) (err error) {
	d, err := open("tail", b)
	if err != nil {
		return err
	}
	r.Version, r.Lapse, r.Effects = d.Byte(), retrysafe.Lapse(d.Byte()+1), retrysafe.Effects(d.Byte()+1)
	r.Retain = time.Duration(d.Varint())
	r.ProviderRef, r.Reason = string(d.Bytes()), string(d.Bytes())
	if r.Inquiry, err = storekit.DecodeInquiry(d.Bytes()); err != nil {
		return err
	}
	if d.Bad || len(d.Rest) == 0 {
		return ended("tail", &d)
	}
	r.Result, err = storekit.DecodeResult(d.Rest)
	return err
}

func open(part string, b []byte) (fields.Reader, error) {
	switch {
	case len(b) == 0:
		return fields.Reader{}, fmt.Errorf("%w: its %s is missing", retrysafe.ErrUnreadable, part)
	case b[0] != layout:
		return fields.Reader{}, fmt.Errorf("%w: its %s has layout %d, this program reads %d; upgrade the program", retrysafe.ErrUnreadable, part, b[0], layout)
	}
	return fields.Reader{Rest: b[1:]}, nil
}

func ended(part string, d *fields.Reader) error {
	if d.Bad || len(d.Rest) != 0 {
		return fmt.Errorf("%w: the fields of its %s do not add up", retrysafe.ErrUnreadable, part)
	}
	return nil
}

// decodeMeta sets what a meta says.
func decodeMeta(r *retrysafe.Record, m string) {
	var b [metaLength]byte
	copy(b[:], m)
	r.Revision = int64(binary.BigEndian.Uint64(b[:]))
	r.Deadline, r.CreatedAt, r.UpdatedAt = fromMicros(int64(binary.BigEndian.Uint64(b[8:]))), fromMicros(int64(binary.BigEndian.Uint64(b[16:]))), fromMicros(int64(binary.BigEndian.Uint64(b[24:])))
	r.State = retrysafe.State(b[32])
}

// storedMeta returns the meta of a record as it came from the server, if it is there twice.
func storedMeta(v string) (meta string, ok bool) {
	if len(v) < 2*metaLength || v[:metaLength] != v[len(v)-metaLength:] {
		return "", false
	}
	return v[:metaLength], true
}

// decode decodes a record as it came from the server at its time now, and returns its body
// too. Every error is [retrysafe.ErrUnreadable].
func decode(i id, v string, now int64) (r retrysafe.Record, at body, err error) {
	meta, ok := storedMeta(v)
	if !ok {
		return r, at, fmt.Errorf("%w: its meta does not match; it is damaged", retrysafe.ErrUnreadable)
	}
	if at, err = splitBody([]byte(v[metaLength : len(v)-metaLength])); err != nil {
		return r, at, err
	}
	copy(r.Owner[:], at.bytes)
	if err = decodeHead(&r, at.bytes[ownerEnd+4:at.head]); err == nil {
		err = decodeCheckpoint(&r, at.bytes[at.head+4:at.checkpoint])
	}
	if err == nil {
		err = decodeTail(&r, at.bytes[at.checkpoint:])
	}
	if err == nil && idOf(r.Ref) != i {
		err = fmt.Errorf("%w: it is stored under the name of another", retrysafe.ErrUnreadable)
	}
	if err != nil {
		return retrysafe.Record{}, at, err
	}
	decodeMeta(&r, meta)
	r.ReadAt = fromMicros(now)
	if r.ReadAt.Before(r.UpdatedAt) {
		r.ReadAt = r.UpdatedAt
	}
	return r, at, nil
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }
