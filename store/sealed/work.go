package sealed

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
)

// work holds keyed hashes, which are expensive to create and cheap to reset, and
// buffers. One goroutine uses it at a time, and returns it to the pool before it waits
// for the store below.
type work struct {
	keys       *Keyring
	scope, key hash.Hash
	sum        []byte
	aad        []byte
	plain      []byte
}

func newWork(k *Keyring) *work {
	return &work{
		keys:  k,
		scope: hmac.New(sha256.New, k.index.scope),
		key:   hmac.New(sha256.New, k.index.key),
	}
}

// maxKept is the largest plaintext buffer that goes back to the pool.
const maxKept = 256 << 10

func (k *Keyring) work() *work { return k.pool.Get() }

func (w *work) done() {
	if cap(w.plain) > maxKept {
		w.plain = nil
	}
	w.keys.pool.Put(w)
}
