package fields_test

import (
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

func FuzzReader(f *testing.F) {
	hammer.Add(f, []byte{1, 2, 3})
	hammer.Fuzz(f, func(_ *testing.T, b []byte) { // it must neither panic nor read what is not there
		r := fields.Reader{Rest: b}
		for range 8 {
			_, _, _, _, _ = r.Byte(), r.Varint(), r.Bytes(), r.Optional(), r.Count()
		}
	})
}
