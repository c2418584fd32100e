package sealed_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

func parsed(t *testing.T, text []byte) *sealed.Keyring {
	t.Helper()
	ring, err := sealed.ParseKeyring(text)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// A rotation, as it goes: what each file has sealed, the next ones open.
func TestKeysFileRotates(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	one := sealed.GenerateKeys()
	r := create(t, over(t, below, parsed(t, one)), full("tenant-a", "order-1"))

	both, number, err := sealed.AddKey(one)
	if err != nil || number != 2 {
		t.Fatalf("AddKey = %d, %v", number, err)
	}
	if got := parsed(t, both).String(); got != "keyring(writes 1, reads 1, 2)" {
		t.Errorf("a key that was added: %s", got)
	}
	two, err := sealed.UseKey(both, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := parsed(t, two).String(); got != "keyring(writes 2, reads 1, 2)" {
		t.Errorf("a key that is used: %s", got)
	}
	same(t, load(t, over(t, below, parsed(t, two)), r.Ref), full("tenant-a", "order-1").Record)
	if _, err := sealed.UseKey(both, 3); err == nil || !strings.Contains(err.Error(), "key 3 is to be current") {
		t.Errorf("UseKey of a key that is not there: %v", err)
	}
	if _, err := sealed.UseKey(both[1:], 2); err == nil {
		t.Error("UseKey in a file that cannot be read")
	}
	last := []byte(strings.ReplaceAll(strings.Replace(string(one), `"current": 1`, `"current": 4294967295`, 1), `"1":`, `"4294967295":`))
	parsed(t, last)
	if _, number, err := sealed.AddKey(last); err == nil {
		t.Errorf("behind the last number comes %d", number)
	}
	if _, err := sealed.ParseKeyring([]byte(strings.ReplaceAll(string(both), `"2":`, `"0":`))); err == nil {
		t.Error("a key has the number 0")
	}
}

// A key that is added gets a number that was never used, also after an old key was taken
// out of the file.
func TestAddedKeyReplacesNone(t *testing.T) {
	t.Parallel()
	text := sealed.GenerateKeys()
	for range 2 {
		var err error
		if text, _, err = sealed.AddKey(text); err != nil {
			t.Fatal(err)
		}
	}
	text, err := sealed.UseKey(text, 3)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Index   string            `json:"index"`
		Current int               `json:"current"`
		Keys    map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	delete(file.Keys, "1")
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	more, number, err := sealed.AddKey(text)
	if err != nil || number != 4 {
		t.Fatalf("AddKey = %d, %v", number, err)
	}
	if got := parsed(t, more).String(); got != "keyring(writes 3, reads 2, 3, 4)" {
		t.Errorf("the file has %s", got)
	}
}

func TestKeysFileIsNewEachTime(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	create(t, over(t, below, parsed(t, sealed.GenerateKeys())), full("tenant-a", "order-1"))
	if err := sealed.Check(t.Context(), below, parsed(t, sealed.GenerateKeys())); err == nil {
		t.Error("the secrets of one file open what another's have sealed")
	}
}

func TestKeysFileRefuses(t *testing.T) {
	t.Parallel()
	const a, b = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	for text, says := range map[string]string{
		``:                  "no JSON at byte 0",
		`{`:                 "no JSON",
		`[]`:                "the file is no object",
		`{7: 1}`:            "no JSON at byte",
		`{"current"`:        "no JSON at byte",
		`{"current": 1, }`:  "no JSON at byte",
		`{"keys": {"1": }}`: "no JSON at byte",
		`{}`:                `"index" is missing`,
		`null`:              "the file is no object",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {"1": %q}} {}`, a, b):                          "something follows",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {}}`, a):                                       `"keys" has none`,
		fmt.Sprintf(`{"index": %q, "keys": {"1": %q}}`, a, b):                                           `"current" is missing`,
		fmt.Sprintf(`{"index": %q, "current": "1", "keys": {"1": %q}}`, a, b):                           `"current" is not the number`,
		fmt.Sprintf(`{"index": %q, "current": 1.0, "keys": {"1": %q}}`, a, b):                           "keys have numbers",
		fmt.Sprintf(`{"index": %q, "current": 2, "keys": {"1": %q}}`, a, b):                             "key 2 is to be current",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {"01": %q}}`, a, b):                            "keys have numbers",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {"1": %q, "1": %q}}`, a, b, b):                 `"keys" has a member twice`,
		fmt.Sprintf(`{"index": %q, "index": %q, "current": 1, "keys": {"1": %q}}`, a, a, b):             "the file has a member twice",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {"1": %q}, "Index": %q}`, a, b, a):             "none of",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {"1": %q}}`, a, a):                             "key 1 is the index secret",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {"1": "AQEC"}}`, a):                            "key 1 has 3 bytes",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {"1": "hunter2!"}}`, a):                        "key 1 is not written in base64",
		fmt.Sprintf(`{"index": 7, "current": 1, "keys": {"1": %q}}`, b):                                 "the index secret is not written in base64",
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": [%q]}`, a, b):                                  `"keys" is no object`,
		fmt.Sprintf(`{"index": %q, "current": 1, "keys": {"1": %q}`, a, b) + strings.Repeat(" ", 1<<20): "over 1048576 bytes",
	} {
		ring, err := sealed.ParseKeyring([]byte(text))
		if ring != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.120s: %v, want an error that says %q", text, err, says)
		}
		for _, secret := range []string{a, b, "hunter2"} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows a secret: %v", err)
			}
		}
		if _, _, err := sealed.AddKey([]byte(text)); err == nil && !strings.Contains(says, "key ") {
			t.Errorf("%.120s: a key was added", text)
		}
	}
}

func TestLoadKeyring(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	if _, err := sealed.LoadKeyring(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := sealed.LoadKeyring(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), "keys file") {
		t.Errorf("a folder: %v", err)
	}
	text := sealed.GenerateKeys()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if ring, err := sealed.LoadKeyring(path); err != nil || ring.Current() != 1 {
		t.Errorf("LoadKeyring = %v, %v", ring, err)
	}
	if err := os.WriteFile(path, text[:50], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sealed.LoadKeyring(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a file: %v", err)
	}
}

func TestDerivedSecrets(t *testing.T) {
	t.Parallel()
	text := sealed.GenerateKeys()
	more, _, err := sealed.AddKey(text)
	if err != nil {
		t.Fatal(err)
	}
	one := parsed(t, text).Derive("fingerprints")
	if len(one) != sealed.KeySize || !bytes.Equal(one, parsed(t, more).Derive("fingerprints")) {
		t.Error("a derived secret does not stay the same when keys are added")
	}
	if bytes.Equal(one, parsed(t, text).Derive("else")) || bytes.Equal(one, parsed(t, sealed.GenerateKeys()).Derive("fingerprints")) {
		t.Error("two labels, or two keyrings, have the same secret")
	}
}

func FuzzParseKeyring(f *testing.F) {
	hammer.Add(f, sealed.GenerateKeys())
	hammer.Add(f, []byte(`{"index": "", "current": 1, "keys": {"1": ""}}`))
	hammer.Fuzz(f, func(t *testing.T, text []byte) {
		if _, err := sealed.ParseKeyring(text); err != nil {
			return
		}
		more, number, err := sealed.AddKey(text)
		if err != nil {
			return // the last number is taken
		}
		if text, err = sealed.UseKey(more, number); err != nil {
			t.Fatal(err)
		}
		if ring, err := sealed.ParseKeyring(text); err != nil || ring.Current() != number {
			t.Errorf("%v, %v", ring, err)
		}
	})
}
