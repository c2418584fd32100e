package retrysafe

// A Fingerprint is a hash of what the caller intends. A key whose fingerprint
// differs from the stored one is a different request: it never gets the stored
// answer and never touches the record.
//
// Alg names the algorithm and, for keyed hashes, the secret. It travels with
// the record, so that a new algorithm does not turn an old retry into a
// mismatch: see [Call.Refingerprint]. Alg 0 is no fingerprint at all.
type Fingerprint struct {
	Alg uint8
	Sum [32]byte
}

// IsZero reports whether there is no fingerprint.
func (f Fingerprint) IsZero() bool { return f.Alg == 0 }
