package sealed_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// A keyring that would not protect anything is refused in words that say which
// secret is wrong, and never show one.
func TestNewKeyringRefuses(t *testing.T) {
	t.Parallel()
	index, one := secret("index"), secret("key 1")
	cases := []struct {
		name    string
		index   []byte
		current uint32
		keys    map[uint32][]byte
		says    string
	}{
		{"no index secret", nil, 1, numbered(1), "the index secret has 0 bytes; it needs 32"},
		{"short index secret", index[:31], 1, numbered(1), "the index secret has 31 bytes"},
		{"zero index secret", make([]byte, 32), 1, numbered(1), "the index secret is all zeros"},
		{"no keys", index, 1, nil, "key 1 is to be current but is not among the 0 keys given"},
		{"current key missing", index, 3, numbered(1, 2), "key 3 is to be current but is not among the 2 keys given"},
		{"short key", index, 1, map[uint32][]byte{1: one, 2: one[:16]}, "key 2 has 16 bytes; it needs 32"},
		{"long key", index, 1, map[uint32][]byte{1: append(secret("x"), 0)}, "key 1 has 33 bytes"},
		{"zero key", index, 1, map[uint32][]byte{1: one, 7: make([]byte, 32)}, "key 7 is all zeros"},
		{"key twice", index, 1, map[uint32][]byte{1: one, 2: one}, "key 2 is the same as key 1"},
		{"index as key", index, 1, map[uint32][]byte{1: one, 2: index}, "key 2 is the index secret"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keys, err := sealed.NewKeyring(c.index, c.current, c.keys)
			if keys != nil || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("NewKeyring = %v, %v, want an error that says %q", keys, err, c.says)
			}
		})
	}
}

func TestNewNeedsBoth(t *testing.T) {
	t.Parallel()
	if s, err := sealed.New(nil, ring(t, 1, 1)); s != nil || err == nil {
		t.Errorf("New without a store below = %v, %v, want an error", s, err)
	}
	if s, err := sealed.New(memstore.New(nil), nil); s != nil || err == nil {
		t.Errorf("New without a keyring = %v, %v, want an error", s, err)
	}
	if err := sealed.Check(t.Context(), memstore.New(nil), nil); err == nil {
		t.Error("Check without a keyring = nil, want an error")
	}
}

// The caller may erase its secrets once the keyring has them.
func TestKeyringKeepsNothingOfItsArguments(t *testing.T) {
	t.Parallel()
	index, keys := secret("index"), numbered(1)
	mine, err := sealed.NewKeyring(index, 1, keys)
	if err != nil {
		t.Fatal(err)
	}
	clear(index)
	clear(keys[1])
	clear(keys)

	below := memstore.New(nil)
	want := create(t, over(t, below, mine), full("tenant-a", "order-1"))
	same(t, load(t, over(t, below, ring(t, 1, 1)), want.Ref), want)
}

// However a keyring is printed or logged, no secret appears.
func TestKeyringPrintsNoSecret(t *testing.T) {
	t.Parallel()
	keys := ring(t, 2, 1, 2)
	if got, want := keys.String(), "keyring(writes 2, reads 1, 2)"; got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
	if got := keys.Current(); got != 2 {
		t.Errorf("Current = %d, want 2", got)
	}

	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", keys)
		fmt.Fprintf(&out, verb+"\n", struct{ K *sealed.Keyring }{keys})
	}
	slog.New(slog.NewTextHandler(&out, nil)).InfoContext(t.Context(), "start", "keys", keys)
	slog.New(slog.NewJSONHandler(&out, nil)).InfoContext(t.Context(), "start", "keys", keys)
	for _, s := range [][]byte{secret("index"), secret("key 1"), secret("key 2")} {
		for _, form := range []string{string(s), hex.EncodeToString(s), fmt.Sprint(s)[1:20]} {
			if strings.Contains(out.String(), form) {
				t.Errorf("a secret shows in:\n%s", out.String())
			}
		}
	}
}
