package sealed

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
)

// A keys file holds the secrets of a keyring, as JSON:
//
//	{
//	  "index": "…",
//	  "current": 2,
//	  "keys": {
//	    "1": "…",
//	    "2": "…"
//	  }
//	}
//
// Each secret is KeySize bytes in base64. A file with any other content is refused: a
// misspelt or duplicate name would mean a missing key later. No error shows any of a
// file's text.

// maxKeysFile bounds the size of a keys file. A thousand keys take a tenth of it.
const maxKeysFile = 1 << 20

// LoadKeyring returns the keyring of the keys file at path.
func LoadKeyring(path string) (*Keyring, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sealed: keys file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeysFile+1))
	if err != nil {
		return nil, fmt.Errorf("sealed: keys file: %w", err)
	}
	ring, err := ParseKeyring(text)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	return ring, nil
}

// ParseKeyring returns the keyring of a keys file's text.
func ParseKeyring(text []byte) (*Keyring, error) {
	s, err := parseSecrets(text)
	if err != nil {
		return nil, err
	}
	return NewKeyring(s.index, s.current, s.keys)
}

// GenerateKeys returns the text of a new keys file: an index secret, and key 1,
// which is current.
func GenerateKeys() []byte {
	return (&secrets{index: random(), current: 1, keys: map[uint32][]byte{1: random()}}).text()
}

// AddKey returns the text of a keys file with one more key, and its number. The new key
// reads; the current key stays the same. Distribute the file to every node before
// [UseKey].
func AddKey(text []byte) ([]byte, uint32, error) {
	s, err := parseSecrets(text)
	if err != nil {
		return nil, 0, err
	}
	number := slices.Max(slices.Collect(maps.Keys(s.keys))) + 1
	if number == 0 {
		return nil, 0, errors.New("sealed: keys file: there is no number above that of the last key")
	}
	s.keys[number] = random()
	return s.text(), number, nil
}

// UseKey returns the text of a keys file in which another key is current.
func UseKey(text []byte, number uint32) ([]byte, error) {
	s, err := parseSecrets(text)
	if err != nil {
		return nil, err
	}
	s.current = number
	if _, err := NewKeyring(s.index, s.current, s.keys); err != nil {
		return nil, err
	}
	return s.text(), nil
}

// Derive returns a secret of KeySize bytes for something outside the store that a
// reader of it must not be able to guess, such as fingerprints. It depends only on the
// index secret and the label, and reveals nothing of the other secrets.
func (k *Keyring) Derive(label string) []byte {
	secret, err := derive(k.index.handle, nil, "derived "+label)
	if err != nil { // only for other lengths
		return nil
	}
	return secret
}

// secrets is the content of a keys file.
type secrets struct {
	index   []byte
	current uint32
	keys    map[uint32][]byte
}

func random() []byte {
	b := make([]byte, KeySize)
	_, _ = rand.Read(b) // it never fails
	return b
}

func (s *secrets) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"index\": %q,\n  \"current\": %d,\n  \"keys\": {", base64.StdEncoding.EncodeToString(s.index), s.current)
	comma := ""
	for _, number := range slices.Sorted(maps.Keys(s.keys)) {
		fmt.Fprintf(&b, "%s\n    \"%d\": %q", comma, number, base64.StdEncoding.EncodeToString(s.keys[number]))
		comma = ","
	}
	b.WriteString("\n  }\n}\n")
	return b.Bytes()
}

// parseSecrets reads a keys file. [NewKeyring] checks the secrets.
func parseSecrets(text []byte) (*secrets, error) {
	if len(text) > maxKeysFile {
		return nil, fmt.Errorf("sealed: keys file: it is over %d bytes", maxKeysFile)
	}
	s := &secrets{keys: map[uint32][]byte{}}
	r := keysReader{json.NewDecoder(bytes.NewReader(text))}
	r.UseNumber()
	err := r.object("the file", func(name string) (err error) {
		switch name {
		case "index":
			s.index, err = r.secret("the index secret")
		case "current":
			s.current, err = r.number()
		case "keys":
			err = r.object(`"keys"`, func(name string) error {
				number, err := keyNumber(name)
				if err == nil {
					s.keys[number], err = r.secret("key " + name)
				}
				return err
			})
		default:
			err = errors.New(`it has a member that is none of "index", "current" and "keys"`)
		}
		return err
	})
	if err == nil {
		if _, end := r.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	switch {
	case err != nil:
	case s.index == nil:
		err = errors.New(`"index" is missing`)
	case len(s.keys) == 0:
		err = errors.New(`"keys" has none`)
	case s.current == 0:
		err = errors.New(`"current" is missing`)
	}
	if err != nil {
		return nil, fmt.Errorf("sealed: keys file: %w", err)
	}
	return s, nil
}

// keysReader reads JSON token by token, so that it detects duplicate members.
type keysReader struct{ *json.Decoder }

// token returns the next token. Its errors do not show the text.
func (r keysReader) token() (json.Token, error) {
	t, err := r.Token()
	if err != nil {
		return nil, fmt.Errorf("it is no JSON at byte %d", r.InputOffset())
	}
	return t, nil
}

// object reads an object; member has to read the value of each member.
func (r keysReader) object(what string, member func(name string) error) error {
	t, err := r.token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("%s is no object", what)
	}
	seen := map[string]bool{}
	for r.More() {
		t, err := r.token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		if seen[name] {
			return fmt.Errorf("%s has a member twice", what)
		}
		seen[name] = true
		if err := member(name); err != nil {
			return err
		}
	}
	_, err = r.token()
	return err
}

func (r keysReader) secret(what string) ([]byte, error) {
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	text, ok := t.(string)
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil {
		return nil, fmt.Errorf("%s is not written in base64", what)
	}
	return b, nil
}

func (r keysReader) number() (uint32, error) {
	t, err := r.token()
	if err != nil {
		return 0, err
	}
	n, ok := t.(json.Number)
	if !ok {
		return 0, errors.New(`"current" is not the number of a key`)
	}
	return keyNumber(n.String())
}

var errKeyNumber = errors.New("keys have numbers from 1, without leading zeros")

func keyNumber(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, errKeyNumber
	}
	return uint32(n), nil
}
