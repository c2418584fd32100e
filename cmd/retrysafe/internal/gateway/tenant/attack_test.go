package tenant_test

import (
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

// forge returns a token with any header and claims, and a signature of one's own.
func forge(header, claims map[string]any, sign func(text string) []byte) string {
	h, _ := json.Marshal(header)
	c, _ := json.Marshal(claims)
	text := b64(h) + "." + b64(c)
	return text + "." + b64(sign(text))
}

// refusesAll fails if a token opens anything.
func refusesAll(t *testing.T, j *tenant.JWT, tokens map[string]string) {
	t.Helper()
	for name, token := range tokens {
		got, err := j.Tenant(bearing(token))
		if got != "" || !errors.Is(err, tenant.ErrInvalid) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		quiet(t, err, token)
	}
}

// victim are claims that would be accepted if they were signed.
func victim() map[string]any {
	exp := newClock().now().Add(tokenLife).Unix()
	return map[string]any{"iss": issuerName, "aud": audienceName, "org": "acme", "sub": "mallory", "exp": exp}
}

func TestAttackUnsigned(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	tokens := map[string]string{}
	for _, alg := range []string{"none", "None", "NONE", "nOnE", "", " none", "HS256", "EdDSA", "RS256"} {
		for _, signature := range []string{"", "\x00", strings.Repeat("\x00", ed25519Size)} {
			name := fmt.Sprintf("%q with %d bytes", alg, len(signature))
			tokens[name] = forge(map[string]any{"alg": alg, "kid": "ed-1"}, victim(), func(string) []byte { return []byte(signature) })
		}
	}
	tokens["the library's own"] = must1[string](t)(jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims(victim())).
		SignedString(jwt.UnsafeAllowNoneSignatureType))
	refusesAll(t, is.jwt(t), tokens)
}

const ed25519Size = 64

// The public key is public, so it must never be taken for a shared secret, in whatever
// form.
func TestAttackPublicKeyAsSharedSecret(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	s := signer{id: "rsa-1", method: jwt.SigningMethodRS256, private: rsaPrivate()}
	ed := signer{id: "ed-1", method: jwt.SigningMethodEdDSA, private: edPrivate()}
	is.publish(s, ed)
	public := s.private.Public().(*rsa.PublicKey)
	der := must1[[]byte](t)(x509.MarshalPKIXPublicKey(public))
	text, _ := json.Marshal(s.jwk())
	edPublic := must1[[]byte](t)(x509.MarshalPKIXPublicKey(ed.private.Public()))
	tokens := map[string]string{}
	for name, secret := range map[string][]byte{
		"DER":      der,
		"PEM":      pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"PKCS#1":   pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(public)}),
		"modulus":  public.N.Bytes(),
		"JWK":      text,
		"Ed25519":  edPublic[len(edPublic)-32:],
		"the set":  is.keySet(),
		"no bytes": {},
	} {
		for _, id := range []string{"rsa-1", "ed-1", ""} {
			for _, alg := range []string{"HS256", "RS256", "ES256", "EdDSA"} {
				head := map[string]any{"alg": alg, "kid": id}
				if id == "" {
					delete(head, "kid")
				}
				tokens[name+" "+id+" "+alg] = forge(head, victim(), func(text string) []byte {
					mac := hmac.New(sha256.New, secret)
					mac.Write([]byte(text))
					return mac.Sum(nil)
				})
			}
		}
	}
	refusesAll(t, is.jwt(t), tokens)
}

// A key decides which algorithm it is for, and the configuration which are accepted.
func TestAttackAlgorithmOfAnotherKey(t *testing.T) {
	t.Parallel()
	p256 := signer{id: "p256", method: jwt.SigningMethodES256, private: newEC(elliptic.P256())}
	p384 := signer{id: "p384", method: jwt.SigningMethodES384, private: newEC(elliptic.P384())}
	pinned := signer{id: "pinned", method: jwt.SigningMethodRS256, private: rsaPrivate(), extra: map[string]any{"alg": "RS256"}}
	sealing := signer{id: "sealing", method: jwt.SigningMethodRS256, private: rsaOther(), extra: map[string]any{"use": "enc"}}
	wrapping := signer{id: "wrapping", method: jwt.SigningMethodEdDSA, private: newEd(), extra: map[string]any{"key_ops": []string{"sign"}}}
	is := newIssuer(t)
	is.publish(p256, p384, pinned, sealing, wrapping)
	j := is.jwt(t, func(o *tenant.Options) { o.Algorithms = []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"} })
	as := func(s signer, m jwt.SigningMethod) string { s.method = m; return is.token(t, by(s)) }
	refusesAll(t, j, map[string]string{
		"an RSA key that is pinned to RS256": as(pinned, jwt.SigningMethodPS256),
		"a key for encryption":               as(sealing, jwt.SigningMethodRS256),
		"a key that is not to verify":        as(wrapping, jwt.SigningMethodEdDSA),
		"one curve's key under another's id": is.token(t, by(p256), header("kid", "p384")),
		"an algorithm that is not accepted":  as(pinned, jwt.SigningMethodRS512),
	})
	narrow := is.jwt(t, func(o *tenant.Options) { o.Algorithms = []string{"ES256"} })
	refusesAll(t, narrow, map[string]string{
		"RS256 where only ES256 is accepted": is.token(t, by(pinned)),
		"ES384 where only ES256 is accepted": is.token(t, by(p384)),
	})
	if got, err := narrow.Tenant(bearing(is.token(t, by(p256)))); got != "jwt:acme" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// What the token says of its own keys is not followed: no key in it, no address of
// keys, no path and no other name.
func TestAttackTokenBringsItsOwnKey(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	mallory := signer{id: "ed-1", method: jwt.SigningMethodEdDSA, private: newEd()}
	var visits atomic.Int64
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		visits.Add(1)
		text, _ := json.Marshal(map[string]any{"keys": []any{mallory.jwk()}})
		_, _ = w.Write(text)
	}))
	t.Cleanup(evil.Close)
	tokens := map[string]string{"only his key": is.token(t, by(mallory))}
	for name, change := range map[string]func(*draft){
		"jku":     header("jku", evil.URL),
		"x5u":     header("x5u", evil.URL),
		"jwk":     header("jwk", mallory.jwk()),
		"x5c":     header("x5c", []string{"MIIB"}),
		"iss":     with("iss", evil.URL),
		"jwks":    with("jwks_uri", evil.URL),
		"kid":     header("kid", evil.URL),
		"path":    header("kid", "../../../../dev/null"),
		"file":    header("kid", "file:///dev/null"),
		"SQL":     header("kid", "x' UNION SELECT 'key"),
		"command": header("kid", "|id"),
		"no kid":  header("kid", nil),
		"long":    header("kid", strings.Repeat("k", 4000)),
	} {
		tokens[name] = is.token(t, by(mallory), change)
		tokens[name+", by nobody"] = is.token(t, by(signer{id: "mallory", method: mallory.method, private: mallory.private}), change)
	}
	refusesAll(t, is.jwt(t), tokens)
	if n := visits.Load(); n != 0 {
		t.Errorf("%d visits to an address in a token", n)
	}
}

// What was signed is what is read.
func TestAttackClaimsAreExchanged(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	j := is.jwt(t)
	a := is.token(t, with("org", "umbrella"), with("sub", "mallory"))
	b := is.token(t, with("org", "acme"))
	if got, err := j.Tenant(bearing(a)); got != "jwt:umbrella" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	if got, err := j.Tenant(bearing(b)); got != "jwt:acme" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	tokens := map[string]string{
		"his signature, others' claims": strings.Join([]string{x[0], y[1], x[2]}, "."),
		"others' signature, his claims": strings.Join([]string{x[0], x[1], y[2]}, "."),
		"half a signature":              b[:len(b)-43],
	}
	for i := range len(b) { // each character, changed
		if b[i] == '.' {
			continue
		}
		other := byte('A')
		if b[i] == other {
			other = 'B'
		}
		tokens[fmt.Sprintf("character %d", i)] = b[:i] + string(other) + b[i+1:]
	}
	loose := func(s string) string { sum, _ := base64.RawURLEncoding.DecodeString(s); return string(sum) }
	for _, last := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" {
		if other := y[2][:len(y[2])-1] + string(last); other != y[2] && loose(other) == loose(y[2]) {
			tokens["another spelling of the signature, "+string(last)] = y[0] + "." + y[1] + "." + other
		}
	}
	refusesAll(t, j, tokens)
}
