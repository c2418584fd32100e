package sealed_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// FuzzOpen puts bytes that this keyring has not sealed in the place of an
// envelope. They never open, and nothing panics. The secrets are drawn anew in
// each process, so that no input found by another one can be genuine.
func FuzzOpen(f *testing.F) {
	index, one := make([]byte, sealed.KeySize), make([]byte, sealed.KeySize)
	rand.Read(index)
	rand.Read(one)
	keys, err := sealed.NewKeyring(index, 1, map[uint32][]byte{1: one})
	if err != nil {
		f.Fatal(err)
	}
	below := memstore.New(nil)
	create(f, over(f, below, keys), full("tenant-a", "order-1"))
	genuine := only(f, below)

	for i, field := range sealedFields {
		envelope := field.get(&genuine)
		hammer.Add(f, byte(i), envelope[:len(envelope)-1])
		hammer.Add(f, byte(i), append(bytes.Clone(envelope), 0))
		flipped := bytes.Clone(envelope)
		flipped[len(flipped)/2] ^= 1
		hammer.Add(f, byte(i), flipped)
		hammer.Add(f, byte(i), []byte{1, 0, 0, 0, 1})
		hammer.Add(f, byte(i), []byte{1, 0, 0, 0, 9, 33: 0})
		hammer.Add(f, byte(i), []byte(nil))
		hammer.Add(f, byte(i), []byte("plaintext"))
	}
	hammer.Fuzz(f, func(t *testing.T, which byte, envelope []byte) {
		raw := genuine
		field := sealedFields[int(which)%len(sealedFields)]
		if len(envelope) == 0 && (field.name == "request" || field.name == "reason" || field.name == "checkpoint") {
			return // nothing there is nothing sealed
		}
		if bytes.Equal(envelope, field.get(&genuine)) {
			return // two changes may undo each other
		}
		field.set(&raw, envelope)
		if _, err := keys.Open(&raw); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("%s %x: error = %v, want ErrUnreadable", field.name, envelope, err)
		}
	})
}

// FuzzPlaintext seals any bytes in the place of a plaintext, as damaged or later
// code might have. They are read as something or refused; nothing panics.
func FuzzPlaintext(f *testing.F) {
	below, keys := memstore.New(nil), ring(f, 1, 1)
	ref := create(f, over(f, below, keys), full("tenant-a", "order-1")).Ref
	genuine := only(f, below)
	for i := range sealedFields {
		hammer.Add(f, byte(i), []byte("\x08tenant-a\x07order-1\x00"))
		hammer.Add(f, byte(i), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
		hammer.Add(f, byte(i), []byte("\x92\x03\x00\x01\x01A\x02\x01b\x01c\x03end"))
	}
	hammer.Fuzz(f, func(t *testing.T, which byte, plain []byte) {
		raw := genuine
		field := sealedFields[int(which)%len(sealedFields)]
		keys.Misseal(&raw, field.name, plain)
		got, err := keys.Open(&raw)
		switch {
		case err != nil && !errors.Is(err, retrysafe.ErrUnreadable):
			t.Errorf("%s %x: error = %v, want ErrUnreadable", field.name, plain, err)
		case err == nil && field.name != "key text" && got.Ref != ref:
			t.Errorf("%s %x: Ref = %q, want %q", field.name, plain, got.Ref, ref)
		}
	})
}

// FuzzSeal seals any texts. They come back byte for byte, and none that is long
// enough to be recognised can be found below.
func FuzzSeal(f *testing.F) {
	keys := ring(f, 1, 1)
	hammer.Add(f, "tenant-a in the north", "order-1 of monday", "reason of the refusal", "Header", "value of the header",
		[]byte("request of the client"), []byte("checkpoint of the handler"), []byte("body of the answer"))
	hammer.Add(f, "", "", "", "", "", []byte(nil), []byte(nil), []byte(nil))
	hammer.Add(f, "\x00", "\xff\xfe", "\x00", "\x00", "\n", []byte{0}, []byte{}, []byte{255})
	hammer.Fuzz(f, func(t *testing.T, scope, key, reason, header, value string, request, data, body []byte) {
		below := memstore.New(nil)
		s := over(t, below, keys)
		want := full(scope, key)
		want.Reason, want.Request, want.Checkpoint.Data = reason, request, data
		want.Inquiry.Notes = []retrysafe.Note{{By: key, State: retrysafe.StateUnknown, Text: reason}}
		want.Result = &retrysafe.Result{Status: len(body), Header: map[string][]string{header: {value, value}}, Body: body}
		same(t, create(t, s, want), want.Record)
		same(t, load(t, s, want.Ref), want.Record)
		walkText(reflect.ValueOf(only(t, below)), "Record", func(field, text string) {
			for _, secret := range []string{scope, key, reason, value, string(request), string(data), string(body)} {
				// What is short, or zeros, or what operators see anyway, may be there by chance.
				if len(strings.Trim(secret, "\x00")) >= 12 && strings.Contains(text, secret) && !strings.Contains("POST /payments charged ch_1", secret) {
					t.Errorf("the store below sees %q in %s", secret, field)
				}
			}
		})
	})
}
