package fields_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/retrysafe/retrysafe/internal/fields"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

func FuzzNames(f *testing.F) {
	for _, s := range []string{
		"", "key", "8e03978e-40d5-43dd-bc93-6894a57f9324", "8E03978E-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f932g",
		"8e03978e040d5043dd0bc93-6894a57f9324", "00000000-0000-0000-0000-000000000000", "8e03978e-40d5-43dd-bc93-6894a57f93245",
	} {
		hammer.Add(f, s)
	}
	hammer.Fuzz(f, func(t *testing.T, s string) {
		b := fields.AppendName(nil, s)
		r := fields.Reader{Rest: b}
		if got := r.Name(); got != s || r.Bad || len(r.Rest) != 0 {
			t.Errorf("%q comes back as %q", s, got)
		}
		for n := range b {
			if r := (fields.Reader{Rest: b[:n]}); r.Name() != "" || !r.Bad {
				t.Errorf("%d bytes of %x are read as a name", n, b)
			}
		}
	})
}

func TestUUIDsAreShort(t *testing.T) {
	t.Parallel()
	if n := len(fields.AppendName(nil, "8e03978e-40d5-43dd-bc93-6894a57f9324")); n != 17 {
		t.Errorf("a UUID takes %d bytes, want 17", n)
	}
	r := fields.Reader{Rest: []byte{9, 0}}
	if r.Name(); !r.Bad {
		t.Error("a form that this program does not know is read")
	}
}

// What is appended is read again, and nothing is read of a part of it.
func TestFieldsComeBack(t *testing.T) {
	t.Parallel()
	var b []byte
	numbers := []int64{0, 1, -1, 63, -64, 64, -65, math.MaxInt64, math.MinInt64}
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	b = binary.AppendUvarint(b, math.MaxUint64)
	b = fields.Append(b, "text")
	b = fields.Append(b, []byte(nil))
	b = fields.AppendOptional(b, nil)
	b = fields.AppendOptional(b, []byte{})
	b = fields.AppendOptional(b, []byte("some"))
	b = append(b, 2, 'x', 'y') // a count and as many bytes
	read := func(r *fields.Reader) (wrong string) {
		for _, n := range numbers {
			if got := r.Varint(); got != n {
				return fmt.Sprintf("%d comes back as %d", n, got)
			}
		}
		if got := r.Uvarint(); got != math.MaxUint64 {
			return fmt.Sprintf("the largest number comes back as %d", got)
		}
		if got := string(r.Bytes()); got != "text" {
			return fmt.Sprintf("a text comes back as %q", got)
		}
		if got := r.Bytes(); len(got) > 0 {
			return fmt.Sprintf("no bytes come back as %q", got)
		}
		if got := r.Optional(); got != nil {
			return fmt.Sprintf("nil comes back as %q", got)
		}
		if got := r.Optional(); got == nil || len(got) > 0 {
			return fmt.Sprintf("an empty field comes back as %#v", got)
		}
		if got := string(r.Optional()); got != "some" {
			return fmt.Sprintf("an optional field comes back as %q", got)
		}
		if got := r.Count(); got != 2 {
			return fmt.Sprintf("a count of all bytes that are left comes back as %d", got)
		}
		if got := string(r.Take(2)); got != "xy" {
			return fmt.Sprintf("the bytes come back as %q", got)
		}
		return ""
	}
	r := fields.Reader{Rest: b}
	if wrong := read(&r); wrong != "" || r.Bad || len(r.Rest) > 0 {
		t.Errorf("%s, bad: %t, %d bytes left", wrong, r.Bad, len(r.Rest))
	}
	for n := range b {
		if read(&fields.Reader{Rest: b[:n:n]}) == "" {
			t.Errorf("%d of %d bytes are read as all", n, len(b))
		}
	}
}

// After a field that is missing each one is zero, whatever is left.
func TestNothingIsReadAfterAMissingField(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*fields.Reader{
		"a length beyond the end": {Rest: []byte{200, 1, 1, 1}},
		"a number without an end": {Rest: []byte{0x80, 0x80}},
		"a reader that is bad":    {Rest: []byte{1, 1, 1, 1}, Bad: true},
	} {
		r.Bytes()
		r.Rest = []byte{1, 1, 1, 1} // even if there were something
		if !r.Bad || r.Byte() != 0 || r.Uvarint() != 0 || r.Varint() != 0 || r.Bytes() != nil || r.Optional() != nil || r.Count() != 0 || r.Name() != "" || r.Take(1) != nil || !r.Bad {
			t.Errorf("%s: something is read after it", name)
		}
	}
	if r := (fields.Reader{Rest: []byte{3, 1, 1}}); r.Count() != 0 || !r.Bad {
		t.Error("a count is more than the bytes that are left")
	}
}

func FuzzReader(f *testing.F) {
	hammer.Add(f, []byte{1, 2, 3})
	hammer.Fuzz(f, func(_ *testing.T, b []byte) { // it must neither panic nor read what is not there
		r := fields.Reader{Rest: b}
		for range 8 {
			_, _, _, _, _ = r.Byte(), r.Varint(), r.Bytes(), r.Optional(), r.Count()
		}
	})
}
