package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/internal/pool"
)

// KeySize is the length in bytes of the index secret and of every key.
const KeySize = 32

// A Keyring holds the secrets of a sealing store. It never changes and is safe for
// concurrent use. Every way of printing it shows only the numbers of its keys.
type Keyring struct {
	current uint32
	keys    map[uint32]*sealingKey
	index   indexKeys
	pool    pool.Of[work]
}

// NewKeyring returns a keyring. Index is the secret of the look-up hashes. It must be
// the same for as long as the store exists, and differ from every key. Keys are the
// secrets of the contents by number: all of them read, the current one writes. A number
// must never be reused for another secret, because it is stored with what was sealed.
// Every secret is KeySize random bytes.
//
// The keyring keeps nothing of its arguments, so that the caller may erase them.
func NewKeyring(index []byte, current uint32, keys map[uint32][]byte) (*Keyring, error) {
	if err := checkSecret("the index secret", index); err != nil {
		return nil, err
	}
	if _, ok := keys[current]; !ok {
		return nil, fmt.Errorf("sealed: key %d is to be current but is not among the %d keys given", current, len(keys))
	}
	k := &Keyring{current: current, keys: make(map[uint32]*sealingKey, len(keys))}
	ids := slices.Sorted(maps.Keys(keys))
	for i, id := range ids {
		name := fmt.Sprintf("key %d", id)
		if err := checkSecret(name, keys[id]); err != nil {
			return nil, err
		}
		if bytes.Equal(keys[id], index) {
			return nil, fmt.Errorf("sealed: %s is the index secret; each needs bytes of its own", name)
		}
		for _, other := range ids[:i] {
			if bytes.Equal(keys[id], keys[other]) {
				return nil, fmt.Errorf("sealed: %s is the same as key %d; each needs bytes of its own", name, other)
			}
		}
		sk, err := newSealingKey(keys[id], index)
		if err != nil {
			return nil, fmt.Errorf("sealed: derive from %s: %w", name, err)
		}
		k.keys[id] = sk
	}
	var err error
	if k.index, err = newIndexKeys(index); err != nil {
		return nil, fmt.Errorf("sealed: derive from the index secret: %w", err)
	}
	k.pool.New = func() *work { return newWork(k) }
	return k, nil
}

// checkSecret returns an error if a secret is unsuitable. The error shows none of it.
func checkSecret(name string, secret []byte) error {
	switch {
	case len(secret) != KeySize:
		return fmt.Errorf("sealed: %s has %d bytes; it needs %d", name, len(secret), KeySize)
	case bytes.Equal(secret, make([]byte, KeySize)):
		return fmt.Errorf("sealed: %s is all zeros; it needs random bytes", name)
	}
	return nil
}

// Current returns the number of the key that seals.
func (k *Keyring) Current() uint32 { return k.current }

// String returns the numbers of the keys.
func (k *Keyring) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "keyring(writes %d, reads", k.current)
	for i, id := range slices.Sorted(maps.Keys(k.keys)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %d", id)
	}
	b.WriteByte(')')
	return b.String()
}

// Format makes every verb print [Keyring.String], so that none shows a secret.
func (k *Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// derive returns a key for the purpose that label names.
func derive(secret, salt []byte, label string) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, salt, "retrysafe/sealed/1 "+label, KeySize)
}

// purpose is the field that a ciphertext belongs to.
type purpose uint8

const (
	keyText purpose = iota
	request
	checkpoint
	result
	reason
	inquiry
	purposes
)

var purposeNames = [purposes]string{"key text", "request", "checkpoint", "result", "reason", "inquiry"}

func (p purpose) String() string { return purposeNames[p] }

// shards is the number of ciphers for one purpose of one key; the record's look-up hash
// selects one. With random nonces one AES key is good for 2^32 messages, so with 64 of
// them a numbered key is good for 2^38 answers. They take less than 1 MB and about a
// millisecond to derive.
const shards = 64

// sealingKey is one numbered key: a cipher for each purpose and shard, built
// once. None of them shares its AES key with another.
type sealingKey [purposes][shards]cipher.AEAD

// newSealingKey derives the ciphers of a secret. The index secret is the salt: with
// another index no field opens, which is how [Check] detects one.
func newSealingKey(secret, index []byte) (*sealingKey, error) {
	var sk sealingKey
	for p := range purposes {
		for shard := range shards {
			sub, err := derive(secret, index, fmt.Sprintf("%s %d", p, shard))
			if err != nil {
				return nil, err
			}
			block, err := aes.NewCipher(sub)
			if err != nil {
				return nil, err
			}
			if sk[p][shard], err = cipher.NewGCMWithRandomNonce(block); err != nil {
				return nil, err
			}
		}
	}
	return &sk, nil
}
