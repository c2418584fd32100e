package storekit

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
)

// The encoding of a record, for stores that keep it as bytes: a version, the
// fields in a fixed order (numbers as varints, texts and bytes behind their
// length), and a checksum over all of it. What does not decode is
// [retrysafe.ErrUnreadable]: refused, never run again.

// encodingVersion is the version of the byte layout. It differs from
// [retrysafe.RecordVersion], which says what the fields mean.
const encodingVersion = 1

var checksums = crc32.MakeTable(crc32.Castagnoli)

// AppendRecord appends the encoding of every stored field of r to b. ReadAt belongs to
// one read and is left out. Times are kept to the microsecond, so a store truncates its
// now to that at the beginning of a step: otherwise it returns other times than it has
// stored.
func AppendRecord(b []byte, r *retrysafe.Record) []byte {
	start := len(b)
	b = append(b, encodingVersion, r.Version, byte(r.State), byte(r.Lapse)-1, byte(r.Effects)-1, r.Fingerprint.Alg) // policies are stored without their default, which no record has
	b = append(b, r.Fingerprint.Sum[:]...)
	b = append(b, r.Owner[:]...)
	for _, s := range [...]string{r.Scope, r.Key, r.Operation, r.ProviderRef, r.Reason, r.Checkpoint.Phase} {
		b = fields.Append(b, s)
	}
	for _, p := range [...][]byte{r.KeyText, r.Request, r.Checkpoint.Data} {
		b = fields.AppendOptional(b, p)
	}
	b = fields.Append(b, AppendInquiry(nil, &r.Inquiry))
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

// DecodeRecord is the inverse of [AppendRecord]. Every error is
// [retrysafe.ErrUnreadable], wrapped with what is wrong: the checksum, or an encoding of
// a newer program. A record of a newer Version in an encoding that is known is decoded.
//
// The record shares memory with b. If b is a buffer of the driver's, which is valid only
// until the transaction or the row ends, decode a copy.
func DecodeRecord(b []byte) (retrysafe.Record, error) {
	if len(b) < 5 {
		return retrysafe.Record{}, fmt.Errorf("%w: %d bytes are too few", retrysafe.ErrUnreadable, len(b))
	}
	if b[0] != encodingVersion {
		return retrysafe.Record{}, fmt.Errorf("%w: it is encoded as version %d, this program reads %d; upgrade the program", retrysafe.ErrUnreadable, b[0], encodingVersion)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, checksums) != sum {
		return retrysafe.Record{}, fmt.Errorf("%w: its checksum does not match; it is damaged", retrysafe.ErrUnreadable)
	}
	d := fields.Reader{Rest: body[1:]}
	var r retrysafe.Record
	r.Version = d.Byte()
	r.State, r.Lapse, r.Effects = retrysafe.State(d.Byte()), retrysafe.Lapse(d.Byte()+1), retrysafe.Effects(d.Byte()+1)
	r.Fingerprint.Alg = d.Byte()
	copy(r.Fingerprint.Sum[:], d.Take(32))
	copy(r.Owner[:], d.Take(16))
	for _, s := range [...]*string{&r.Scope, &r.Key, &r.Operation, &r.ProviderRef, &r.Reason, &r.Checkpoint.Phase} {
		*s = string(d.Bytes())
	}
	for _, p := range [...]*[]byte{&r.KeyText, &r.Request, &r.Checkpoint.Data} {
		*p = d.Optional()
	}
	inquiry, err := DecodeInquiry(d.Bytes())
	if err != nil {
		return retrysafe.Record{}, err
	}
	r.Inquiry = inquiry
	r.Attempt, r.Retain, r.Revision = int(d.Varint()), time.Duration(d.Varint()), d.Varint()
	for _, t := range [...]*time.Time{&r.Deadline, &r.CreatedAt, &r.UpdatedAt} {
		*t = fromMicros(d.Varint())
	}
	if d.Byte() == 1 {
		r.Result = readResult(&d)
	}
	if d.Bad || len(d.Rest) != 0 {
		return retrysafe.Record{}, fmt.Errorf("%w: its fields do not add up", retrysafe.ErrUnreadable)
	}
	return r, nil
}

// AppendResult appends the encoding of res to b. Equal results have equal
// encodings.
func AppendResult(b []byte, res *retrysafe.Result) []byte {
	b = binary.AppendVarint(b, int64(res.Status))
	omitted := byte(0)
	if res.Omitted {
		omitted = 1
	}
	b = append(b, omitted)
	b = binary.AppendUvarint(b, uint64(len(res.Header)))
	var space [16]string // few answers have more, and those cost an allocation
	names := space[:0]
	for name := range res.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b = appendWord(b, name)
		b = binary.AppendUvarint(b, uint64(len(res.Header[name])))
		for _, v := range res.Header[name] {
			b = appendWord(b, v)
		}
	}
	return fields.Append(b, res.Body)
}

// words are header names and values that many answers hold; one byte stands for
// each. The list only ever grows at its end.
var words = [...]string{
	"Content-Type", "Location", "Etag", "Last-Modified", "Cache-Control", "Content-Language", "Content-Location",
	"Content-Encoding", "Content-Disposition", "Link", "Retry-After", "Vary", "X-Request-Id", "Deprecation", "Sunset",
	"application/json", "application/json; charset=utf-8", "application/problem+json", "text/plain; charset=utf-8",
	"text/html; charset=utf-8", "application/xml", "application/octet-stream", "no-store", "no-cache",
}

var wordNumbers = func() map[string]byte {
	numbers := make(map[string]byte, len(words))
	for i, w := range words {
		numbers[w] = byte(i + 1)
	}
	return numbers
}()

// appendWord appends the number of a word, or zero and the text.
func appendWord(b []byte, s string) []byte {
	if n := wordNumbers[s]; n > 0 {
		return append(b, n)
	}
	return fields.Append(append(b, 0), s)
}

func readWord(d *fields.Reader) string {
	n := int(d.Byte())
	switch {
	case n == 0:
		return string(d.Bytes())
	case n <= len(words):
		return words[n-1]
	default:
		d.Bad = true
		return ""
	}
}

// DecodeResult is the inverse of [AppendResult]. Every error is
// [retrysafe.ErrUnreadable]. The result shares memory with b.
func DecodeResult(b []byte) (*retrysafe.Result, error) {
	d := fields.Reader{Rest: b}
	res := readResult(&d)
	if d.Bad || len(d.Rest) != 0 {
		return nil, fmt.Errorf("%w: its result does not add up", retrysafe.ErrUnreadable)
	}
	return res, nil
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

func readResult(d *fields.Reader) *retrysafe.Result {
	res := &retrysafe.Result{Status: int(d.Varint()), Omitted: d.Byte() == 1}
	if names := d.Count(); names > 0 {
		res.Header = make(map[string][]string, names)
		for range names {
			name := readWord(d)
			values := make([]string, d.Count())
			for i := range values {
				values[i] = readWord(d)
			}
			if _, twice := res.Header[name]; twice || d.Bad {
				d.Bad = true
				return res
			}
			res.Header[name] = values
		}
	}
	res.Body = d.Bytes()
	return res
}

// idMark separates the text of a note from its ID, at its last occurrence. A program
// that knows no IDs shows the ID as part of the text.
const idMark = "\x1f"

// AppendInquiry appends the encoding of q to b: nothing if it is zero.
func AppendInquiry(b []byte, q *retrysafe.Inquiry) []byte {
	if q.IsZero() {
		return b
	}
	tries := uint64(max(q.Tries, 0)) << 2
	if q.Dead {
		tries |= 1
	}
	if q.Disputed {
		tries |= 2
	}
	b = binary.AppendUvarint(b, tries)
	b = binary.AppendUvarint(b, uint64(len(q.Notes)))
	for i := range q.Notes {
		n := &q.Notes[i]
		b = append(binary.AppendVarint(b, micros(n.At)), byte(n.State))
		text := n.Text
		if n.ID != "" || strings.Contains(text, idMark) { // a text that has the mark ends with one of its own
			text += idMark + n.ID
		}
		b = fields.Append(fields.Append(b, n.By), text)
	}
	return b
}

// DecodeInquiry is the inverse of [AppendInquiry]. Every error is
// [retrysafe.ErrUnreadable].
func DecodeInquiry(b []byte) (q retrysafe.Inquiry, err error) {
	if len(b) == 0 {
		return q, nil
	}
	d := fields.Reader{Rest: b}
	tries := d.Uvarint()
	q.Tries, q.Dead, q.Disputed = int(tries>>2), tries&1 != 0, tries&2 != 0
	if n := d.Count(); n > 0 {
		q.Notes = make([]retrysafe.Note, n)
	}
	for i := range q.Notes {
		at, state := fromMicros(d.Varint()), retrysafe.State(d.Byte())
		by, text := string(d.Bytes()), string(d.Bytes())
		id := ""
		if cut := strings.LastIndex(text, idMark); cut >= 0 {
			text, id = text[:cut], text[cut+len(idMark):]
		}
		q.Notes[i] = retrysafe.Note{At: at, State: state, By: by, Text: text, ID: id}
	}
	if d.Bad || len(d.Rest) != 0 {
		return retrysafe.Inquiry{}, fmt.Errorf("%w: its notes do not add up", retrysafe.ErrUnreadable)
	}
	return q, nil
}
