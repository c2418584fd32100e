package sealed

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/retrysafe/retrysafe"
)

// indexKeys are the keys of the hashes, one for each thing that is hashed.
type indexKeys struct{ scope, key, handle []byte }

func newIndexKeys(index []byte) (k indexKeys, err error) {
	subs := []struct {
		to    *[]byte
		label string
	}{{&k.scope, "index scope"}, {&k.key, "index key"}, {&k.handle, "index handle"}}
	for _, sub := range subs {
		if *sub.to, err = derive(index, nil, sub.label); err != nil {
			return k, err
		}
	}
	return k, nil
}

// hashSize is the length of a hash as the store below sees it.
var hashSize = base64.RawURLEncoding.EncodedLen(sha256.Size)

// lower returns the Ref of ref in the store below. It is deterministic, reveals nothing
// of either text without the index secret, and is different for each ref: the key's
// hash covers the scope and its length.
func (w *work) lower(ref retrysafe.Ref) retrysafe.Ref {
	w.plain = append(w.plain[:0], ref.Scope...)
	w.scope.Reset()
	w.scope.Write(w.plain)
	w.sum = w.scope.Sum(w.sum[:0])

	w.plain = appendString(w.plain[:0], ref.Scope)
	w.plain = append(w.plain, ref.Key...)
	w.key.Reset()
	w.key.Write(w.plain)
	w.sum = w.key.Sum(w.sum)

	text := base64.RawURLEncoding.AppendEncode(w.plain[:0], w.sum[:sha256.Size])
	text = base64.RawURLEncoding.AppendEncode(text, w.sum[sha256.Size:])
	w.plain = text
	both := string(text)
	return retrysafe.Ref{Scope: both[:hashSize], Key: both[hashSize:]}
}

func (k *Keyring) lower(ref retrysafe.Ref) retrysafe.Ref {
	w := k.work()
	defer w.done()
	return w.lower(ref)
}

// lowerScope returns the Scope of scope in the store below.
func (k *Keyring) lowerScope(scope string) string {
	return k.lower(retrysafe.Ref{Scope: scope}).Scope
}

// shardOf returns which of a key's ciphers is used for the record below: the first six
// bits of its hash. It reports false if there is no hash.
func shardOf(below retrysafe.Ref) (int, bool) {
	if len(below.Key) != hashSize {
		return 0, false
	}
	switch c := below.Key[0]; {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A'), true
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26, true
	case '0' <= c && c <= '9':
		return int(c-'0') + 52, true
	case c == '-':
		return 62, true
	case c == '_':
		return 63, true
	}
	return 0, false
}
