package tenant

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

// A keySet is what an issuer publishes, as far as it can be used. It never changes.
type keySet struct {
	raw  []byte // as it was read, to see whether another one is the same
	keys []key
}

// A key is a public one, with the algorithms that it may be used with: a key decides
// that, not the token that asks for it.
type key struct {
	id         string
	algorithms []string
	public     jwt.VerificationKey
}

// Which algorithms there are for which keys. None of them is symmetric: with a
// symmetric one, the published keys could sign.
var (
	rsaAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	ecCurves      = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	ecAlgorithms  = map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
	edAlgorithms  = []string{"EdDSA"}
	allAlgorithms = slices.Concat(rsaAlgorithms, []string{"ES256", "ES384", "ES512"}, edAlgorithms)
)

// fitting returns the keys that may have signed a token with this algorithm and key
// id; a token without an id may be signed by any of them.
func (s *keySet) fitting(algorithm string, id *string) []jwt.VerificationKey {
	if s == nil {
		return nil
	}
	var keys []jwt.VerificationKey
	for i := range s.keys {
		if k := &s.keys[i]; (id == nil || k.id == *id) && slices.Contains(k.algorithms, algorithm) {
			keys = append(keys, k.public)
		}
	}
	return keys
}

// maxKeys bounds how many signatures a token without a key id is tried with.
const maxKeys = 64

// parseKeySet reads a JWK Set. Keys that cannot be used are left out, each with the
// reason, as RFC 7517 wants it; a set of none is still a set: what an issuer no
// longer publishes is not believed.
func parseKeySet(raw []byte) (set *keySet, leftOut []error, err error) {
	var list struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(raw, &list); err != nil || list.Keys == nil {
		return nil, nil, errors.New(`it is not a JWK Set: {"keys": […]}`)
	}
	set = &keySet{raw: bytes.Clone(raw)}
	for i, text := range list.Keys {
		k, err := parseKey(text)
		switch {
		case err != nil:
			leftOut = append(leftOut, fmt.Errorf("key %d: %w", i, err))
		case len(set.keys) == maxKeys:
			return nil, nil, fmt.Errorf("it has more than %d keys", maxKeys)
		default:
			set.keys = append(set.keys, k)
		}
	}
	return set, leftOut, nil
}

// A jwk is a key as it is published.
type jwk struct {
	Kty, Kid, Use, Alg, Crv string
	KeyOps                  []string `json:"key_ops"`
	N, E, X, Y, D           octets
}

// octets are bytes in base64url, without padding.
type octets []byte

// UnmarshalText refuses all but the one spelling.
func (o *octets) UnmarshalText(text []byte) (err error) {
	*o, err = base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	return err
}

func parseKey(text []byte) (k key, err error) {
	var j jwk
	if err := json.Unmarshal(text, &j); err != nil {
		return key{}, errors.New("it is malformed")
	}
	switch {
	case j.D != nil:
		return key{}, errors.New("it is a private key, and every reader of it can sign: replace it, and publish its public part only")
	case j.Use != "" && j.Use != "sig", j.KeyOps != nil && !slices.Contains(j.KeyOps, "verify"):
		return key{}, errors.New("it is not for signatures")
	}
	switch k.id = j.Kid; j.Kty {
	case "RSA":
		k.algorithms = rsaAlgorithms
		k.public, err = rsaKey(&j)
	case "EC":
		k.algorithms = []string{ecAlgorithms[j.Crv]}
		k.public, err = ecKey(&j)
	case "OKP":
		k.algorithms = edAlgorithms
		k.public, err = edKey(&j)
	case "oct":
		err = errors.New("it is a shared secret, which a key set cannot hold")
	default:
		err = errors.New("its type is not known here")
	}
	if err != nil {
		return key{}, err
	}
	if j.Alg != "" {
		if !slices.Contains(k.algorithms, j.Alg) {
			return key{}, errors.New("its algorithm is not known here, or not one for its type")
		}
		k.algorithms = []string{j.Alg}
	}
	return k, nil
}

// An RSA key below minRSA bits can be broken, one above maxRSA takes long to try.
const (
	minRSA = 2048
	maxRSA = 8192
)

func rsaKey(j *jwk) (jwt.VerificationKey, error) {
	n, e := new(big.Int).SetBytes(j.N), new(big.Int).SetBytes(j.E)
	if bits := n.BitLen(); bits < minRSA || bits > maxRSA {
		return nil, fmt.Errorf("an RSA key has %d to %d bits, this one %d", minRSA, maxRSA, bits)
	}
	if e.BitLen() < 2 || e.BitLen() > 31 || e.Bit(0) == 0 {
		return nil, errors.New("its exponent is not an odd number from 3 to 2³¹")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func ecKey(j *jwk) (jwt.VerificationKey, error) {
	curve := ecCurves[j.Crv]
	if curve == nil {
		return nil, errors.New("its curve is not known here")
	}
	if size := (curve.Params().BitSize + 7) / 8; len(j.X) != size || len(j.Y) != size {
		return nil, errors.New("its coordinates are not as long as its curve's")
	}
	const uncompressed = 4
	public, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{uncompressed}, j.X, j.Y))
	if err != nil {
		return nil, errors.New("it is not on its curve")
	}
	return public, nil
}

func edKey(j *jwk) (jwt.VerificationKey, error) {
	if j.Crv != "Ed25519" || len(j.X) != ed25519.PublicKeySize {
		return nil, errors.New("it is not an Ed25519 key")
	}
	return ed25519.PublicKey(j.X), nil
}
