package redisstore

import (
	"crypto/sha1" //nolint:gosec // a checksum that scripts can compute; it protects against damage
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// A record is a hash of four fields. The meta has what scripts read and set, in digits of
// fixed width, the sums of the other parts, and a sum of its own over all of it and the
// id. The head stays the same for one attempt, the checkpoint for most writes, the tail is
// new with each write.
//
//	revision 16, deadline 16, created 16, updated 16: microseconds since 1970
//	owner 32, state 3, sum of head 16, of checkpoint 16, of tail 16, own sum 8
const (
	metaBody   = 147
	metaLength = 155
)

// layout is the version of head and tail, their first byte. A program refuses a layout
// that it does not know.
const layout = 1

// noSum is the sum of a checkpoint that is not there.
const noSum = "0000000000000000"

// sumOf returns the checksum of a part, as scripts compute it.
func sumOf(part []byte) string {
	sum := sha1.Sum(part) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:8])
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

// decodeMeta sets what the meta says, if its sum is right.
func decodeMeta(r *retrysafe.Record, i id, m string) error {
	if len(m) != metaLength || sumOf([]byte(m[:metaBody] + string(i)))[:8] != m[metaBody:] {
		return fmt.Errorf("%w: the checksum of its meta does not match; it is damaged", retrysafe.ErrUnreadable)
	}
	var numbers [4]int64
	for n := range numbers {
		v, err := strconv.ParseInt(m[16*n:16*n+16], 10, 64)
		if err != nil {
			return fmt.Errorf("%w: its meta has no number: %w", retrysafe.ErrUnreadable, err)
		}
		numbers[n] = v
	}
	r.Revision = numbers[0]
	r.Deadline, r.CreatedAt, r.UpdatedAt = fromMicros(numbers[1]), fromMicros(numbers[2]), fromMicros(numbers[3])
	if _, err := hex.Decode(r.Owner[:], []byte(m[64:96])); err != nil {
		return fmt.Errorf("%w: its owner: %w", retrysafe.ErrUnreadable, err)
	}
	state, err := strconv.ParseUint(m[96:99], 10, 8)
	if err != nil {
		return fmt.Errorf("%w: its state: %w", retrysafe.ErrUnreadable, err)
	}
	r.State = retrysafe.State(state)
	return nil
}

// stored is a record as it came from the server.
type stored struct {
	now                          int64
	meta, head, checkpoint, tail string
}

// record decodes the parts. Every error is [retrysafe.ErrUnreadable].
func (s *stored) record(i id) (r retrysafe.Record, err error) {
	if err := decodeMeta(&r, i, s.meta); err != nil {
		return retrysafe.Record{}, err
	}
	for _, p := range [...]struct {
		name, text, sum string
		decode          func(*retrysafe.Record, []byte) error
	}{
		{"head", s.head, s.meta[99:115], decodeHead},
		{"checkpoint", s.checkpoint, s.meta[115:131], decodeCheckpoint},
		{"tail", s.tail, s.meta[131:147], decodeTail},
	} {
		b := []byte(p.text)
		if sum := partSum(b); sum != p.sum {
			return retrysafe.Record{}, fmt.Errorf("%w: the checksum of its %s does not match; it is damaged", retrysafe.ErrUnreadable, p.name)
		}
		if err := p.decode(&r, b); err != nil {
			return retrysafe.Record{}, err
		}
	}
	if idOf(r.Ref) != i {
		return retrysafe.Record{}, fmt.Errorf("%w: it is stored under the name of another", retrysafe.ErrUnreadable)
	}
	r.ReadAt = fromMicros(s.now)
	return r, nil
}

// partSum is the sum of a part, or noSum if it is empty.
func partSum(b []byte) string {
	if len(b) == 0 {
		return noSum
	}
	return sumOf(b)
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }
