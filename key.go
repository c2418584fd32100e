package retrysafe

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// DownstreamKey returns the idempotency key for one outside call of this
// operation: the same on every attempt, different for every call name, scope and
// key, with the form of a UUID. It tells the provider nothing of the caller's
// own key.
//
// It outlives the record on purpose: a client that retries after the record was
// forgotten still gets the same key at the provider, which may remember the call.
func (x *Execution) DownstreamKey(call string) string {
	return DownstreamKey(x.e.namespace, x.ref, call)
}

// DownstreamKey is [Execution.DownstreamKey] for a program that has only the ref, such
// as a worker that calls the provider later.
func DownstreamKey(namespace string, ref Ref, call string) string {
	b := make([]byte, 0, 256)
	for _, part := range [...]string{"retrysafe downstream key 1", namespace, ref.Scope, ref.Key, call} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part))) // lengths first: no two lists of parts read the same
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80 // UUID version 8: ours
	id[8] = id[8]&0x3f | 0x80
	out := make([]byte, 0, 36)
	for i, n := 0, 0; i < 16; i, n = i+1, n+1 {
		if n == 4 || n == 6 || n == 8 || n == 10 {
			out = append(out, '-')
		}
		out = hex.AppendEncode(out, id[i:i+1])
	}
	return string(out)
}

// A Fingerprint is a hash of what the caller intends. A key whose fingerprint
// differs from the stored one is a different request: it never gets the stored
// answer and never touches the record.
//
// Alg names the algorithm and, for keyed hashes, the secret. It travels with
// the record, so that a new algorithm does not turn an old retry into a
// mismatch: see [Call.Refingerprint]. Alg 0 is no fingerprint at all. A guard that
// compares chosen fields only names the choice in the last bytes of Sum.
type Fingerprint struct {
	Alg uint8
	Sum [32]byte
}

// The algorithms of [FingerprintOf] and [FingerprintJSON]. The guards of httpkey and
// other packages have numbers of their own.
const (
	algBytes = 6
	algJSON  = 7
)

// FingerprintOf returns the fingerprint of a call that does not come by HTTP: of its
// scope and operation, and of the bytes that say what is intended. Equal requests of two
// scopes have different fingerprints.
func FingerprintOf(scope, operation string, intent []byte) Fingerprint {
	return fingerprint(algBytes, scope, operation, intent)
}

// FingerprintJSON is [FingerprintOf] for a value that says what is intended, by its JSON.
// A struct or a map always has the same; a struct to which a field is added does not
// match what was stored before, unless the field is omitted while it is zero.
func FingerprintJSON(scope, operation string, intent any) (Fingerprint, error) {
	text, err := json.Marshal(intent)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("%w: its intent is no JSON: %w", ErrInvalidCall, err)
	}
	return fingerprint(algJSON, scope, operation, text), nil
}

func fingerprint(alg uint8, scope, operation string, intent []byte) Fingerprint {
	b := make([]byte, 0, len(scope)+len(operation)+len(intent)+64)
	for _, part := range [...]string{"retrysafe fingerprint", scope, operation} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	return Fingerprint{Alg: alg, Sum: sha256.Sum256(append(b, intent...))}
}

// IsZero reports whether there is no fingerprint.
func (f Fingerprint) IsZero() bool { return f.Alg == 0 }

// HashKey is how a key is named in logs and on pages: the same everywhere, and not the
// key itself, which a reader of the logs could use. The empty key has no name.
func HashKey(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("retrysafe key\x00" + key))
	return hex.EncodeToString(sum[:8])
}
