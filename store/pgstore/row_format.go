package pgstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// layout is the version of head and tail. Both have it in the upper half of their first
// byte, so that a program refuses a layout that it does not know.
const layout = 1

var checksums = crc32.MakeTable(crc32.Castagnoli)

// The optional fields of a head, as bits in the lower half of its first byte.
const (
	hasAlg     = 1 << iota // the algorithm of the fingerprint, if it is not usualAlg
	hasAttempt             // the number of the attempt, if it is not the first
	hasKeyText
	hasRequest
)

// usualAlg is the algorithm that this layout leaves out: that of HTTP guards from before
// the scope was part of a fingerprint. Any other takes a byte.
const usualAlg = 1

// appendHead appends the head: the fields that stay the same for one attempt. The
// checksum covers the id too.
func appendHead(b []byte, i id, r *retrysafe.Record) []byte {
	start := len(b)
	has := bitIf(hasAlg, r.Fingerprint.Alg != usualAlg) | bitIf(hasAttempt, r.Attempt != 1) |
		bitIf(hasKeyText, r.KeyText != nil) | bitIf(hasRequest, r.Request != nil)
	b = append(b, layout<<4|has)
	if has&hasAlg != 0 {
		b = append(b, r.Fingerprint.Alg)
	}
	b = append(b, r.Fingerprint.Sum[:]...)
	if has&hasAttempt != 0 {
		b = binary.AppendVarint(b, int64(r.Attempt))
	}
	b = fields.AppendName(b, r.Scope)
	b = fields.AppendName(b, r.Key)
	b = appendOperation(b, r.Operation)
	if has&hasKeyText != 0 {
		b = fields.Append(b, r.KeyText)
	}
	if has&hasRequest != 0 {
		b = fields.Append(b, r.Request)
	}
	return appendSum(b, b[start:], i[:])
}

// bitIf is bit if set is true, else 0.
func bitIf(bit byte, set bool) byte {
	if set {
		return bit
	}
	return 0
}

// decodeHead is the inverse of [appendHead].
func decodeHead(r *retrysafe.Record, first byte, d *fields.Reader) {
	r.Fingerprint.Alg, r.Attempt = usualAlg, 1
	if first&hasAlg != 0 {
		r.Fingerprint.Alg = d.Byte()
	}
	copy(r.Fingerprint.Sum[:], d.Take(32))
	if first&hasAttempt != 0 {
		r.Attempt = int(d.Varint())
	}
	r.Scope, r.Key, r.Operation = d.Name(), d.Name(), readOperation(d)
	if first&hasKeyText != 0 {
		r.KeyText = d.Bytes()
	}
	if first&hasRequest != 0 {
		r.Request = d.Bytes()
	}
}

// methods are the beginnings of most operations; one byte stands for each. The list may
// only grow at its end.
var methods = [...]string{"POST ", "PUT ", "PATCH ", "DELETE "}

// appendOperation appends the number of an operation's method, or zero, and the rest of
// its text.
func appendOperation(b []byte, s string) []byte {
	for n, method := range methods {
		if rest, ok := strings.CutPrefix(s, method); ok {
			return fields.Append(append(b, byte(n+1)), rest)
		}
	}
	return fields.Append(append(b, 0), s)
}

func readOperation(d *fields.Reader) string {
	n, rest := int(d.Byte()), string(d.Bytes())
	switch {
	case n == 0:
		return rest
	case n <= len(methods):
		return methods[n-1] + rest
	default:
		d.Bad = true
		return ""
	}
}

// The second byte of a tail, from its lowest bits: lapse policy, effects and the unit of
// the retention, two bits each, and one bit for each optional field.
const (
	effectsAt  = 2
	unitAt     = 4
	hasTexts   = 1 << 6 // provider reference and reason
	hasInquiry = 1 << 7

	// otherPolicies says that effects or lapse policy do not fit in two bits: both follow,
	// a byte each.
	otherPolicies = 3
	// otherVersion says that the version does not fit in half a byte: it follows.
	otherVersion = 15
)

// units are the units of retentions. A retention is a number of the largest one that
// divides it.
var units = [4]time.Duration{time.Nanosecond, time.Second, time.Minute, time.Hour}

// appendTail appends the tail: the fields that each swap sets. The checksum covers the
// state too. The lower half of the first byte is the record's version.
func appendTail(b []byte, r *retrysafe.Record) []byte {
	start := len(b)
	unit := len(units) - 1
	for r.Retain%units[unit] != 0 {
		unit--
	}
	lapse, effects := byte(r.Lapse)-1, byte(r.Effects)-1 // their default, which no record has, wraps around
	policies := lapse | effects<<effectsAt
	odd := lapse > 3 || effects >= otherPolicies
	if odd {
		policies = otherPolicies << effectsAt
	}
	has := bitIf(hasTexts, r.ProviderRef != "" || r.Reason != "") | bitIf(hasInquiry, !r.Inquiry.IsZero())
	b = append(b, layout<<4|min(r.Version, otherVersion), policies|byte(unit)<<unitAt|has)
	if r.Version >= otherVersion {
		b = append(b, r.Version)
	}
	if odd {
		b = append(b, lapse, effects)
	}
	b = binary.AppendVarint(b, int64(r.Retain/units[unit]))
	if has&hasTexts != 0 {
		b = fields.Append(fields.Append(b, r.ProviderRef), r.Reason)
	}
	if has&hasInquiry != 0 {
		b = fields.Append(b, storekit.AppendInquiry(nil, &r.Inquiry))
	}
	if r.Result != nil {
		b = storekit.AppendResult(b, r.Result)
	}
	return appendSum(b, b[start:], []byte{byte(r.State)})
}

// decodeTail is the inverse of [appendTail].
func decodeTail(r *retrysafe.Record, first byte, d *fields.Reader) (err error) {
	packed := d.Byte()
	if r.Version = first & otherVersion; r.Version == otherVersion {
		r.Version = d.Byte()
	}
	lapse, effects := packed&3, packed>>effectsAt&3
	if effects == otherPolicies {
		lapse, effects = d.Byte(), d.Byte()
	}
	r.Lapse, r.Effects = retrysafe.Lapse(lapse+1), retrysafe.Effects(effects+1)
	r.Retain = time.Duration(d.Varint()) * units[packed>>unitAt&3]
	if packed&hasTexts != 0 {
		r.ProviderRef, r.Reason = string(d.Bytes()), string(d.Bytes())
	}
	if packed&hasInquiry != 0 {
		if r.Inquiry, err = storekit.DecodeInquiry(d.Bytes()); err != nil {
			return err
		}
	}
	if d.Bad || len(d.Rest) == 0 {
		return nil
	}
	r.Result, err = storekit.DecodeResult(d.Rest)
	return err
}

// appendCheckpoint appends a checkpoint: nothing if it is zero.
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

// open checks the layout and the checksum of a part, and returns its first byte and a
// reader of the others.
func open(part string, b, with []byte) (first byte, d fields.Reader, err error) {
	if len(b) > 0 && b[0]>>4 != layout {
		return 0, d, fmt.Errorf("%w: its %s has layout %d, this program reads %d; upgrade the program", retrysafe.ErrUnreadable, part, b[0]>>4, layout)
	}
	body, err := checked(part, b, with)
	if err != nil {
		return 0, d, err
	}
	return body[0], fields.Reader{Rest: body[1:]}, nil
}

// checked returns a part without its checksum, if that is right.
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
