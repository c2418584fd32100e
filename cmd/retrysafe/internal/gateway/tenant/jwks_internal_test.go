package tenant

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

func enc(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// modulus returns an odd number of so many bits. No signature is made with it.
func modulus(bits uint) string {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return enc(n.SetBit(n, 0, 1).Bytes())
}

func point(t *testing.T, curve elliptic.Curve) (x, y string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p, err := k.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return enc(p[1 : 1+len(p)/2]), enc(p[1+len(p)/2:])
}

func TestParseKeySet(t *testing.T) {
	t.Parallel()
	x, y := point(t, elliptic.P256())
	x384, y384 := point(t, elliptic.P384())
	ed, n := enc(make([]byte, 32)), modulus(2048)
	short := enc(make([]byte, 31))
	rsaWith := func(more string) string { return fmt.Sprintf(`{"kty":"RSA","kid":"k","e":"AQAB","n":"%s"%s}`, n, more) }
	ecWith := func(crv, x, y string) string {
		return fmt.Sprintf(`{"kty":"EC","crv":"%s","x":"%s","y":"%s"}`, crv, x, y)
	}
	for name, c := range map[string]struct {
		key     string
		want    []string // its algorithms
		leftOut string   // why there are none
	}{
		"RSA":                      {rsaWith(``), rsaAlgorithms, ""},
		"RSA for one algorithm":    {rsaWith(`,"alg":"PS384"`), []string{"PS384"}, ""},
		"for signatures":           {rsaWith(`,"use":"sig","key_ops":["verify"]`), rsaAlgorithms, ""},
		"with what is not known":   {rsaWith(`,"x5c":["MIIB"],"x5u":"https://example.com","ext":true`), rsaAlgorithms, ""},
		"RSA for EC's algorithm":   {rsaWith(`,"alg":"ES256"`), nil, "algorithm"},
		"RSA for a shared secret":  {rsaWith(`,"alg":"HS256"`), nil, "algorithm"},
		"RSA for none":             {rsaWith(`,"alg":"none"`), nil, "algorithm"},
		"RSA for encryption":       {rsaWith(`,"alg":"RSA-OAEP"`), nil, "algorithm"},
		"for encryption":           {rsaWith(`,"use":"enc"`), nil, "not for signatures"},
		"to sign":                  {rsaWith(`,"key_ops":["sign"]`), nil, "not for signatures"},
		"for nothing":              {rsaWith(`,"key_ops":[]`), nil, "not for signatures"},
		"a private key":            {rsaWith(`,"d":"AQAB"`), nil, "private key"},
		"a weak key":               {fmt.Sprintf(`{"kty":"RSA","e":"AQAB","n":"%s"}`, modulus(1024)), nil, "1024"},
		"an almost weak key":       {fmt.Sprintf(`{"kty":"RSA","e":"AQAB","n":"%s"}`, modulus(2047)), nil, "2047"},
		"a huge key":               {fmt.Sprintf(`{"kty":"RSA","e":"AQAB","n":"%s"}`, modulus(8200)), nil, "8200"},
		"no modulus":               {`{"kty":"RSA","e":"AQAB"}`, nil, "bits"},
		"no exponent":              {fmt.Sprintf(`{"kty":"RSA","n":"%s"}`, n), nil, "exponent"},
		"exponent 1":               {fmt.Sprintf(`{"kty":"RSA","e":"AQ","n":"%s"}`, n), nil, "exponent"},
		"exponent 2":               {fmt.Sprintf(`{"kty":"RSA","e":"Ag","n":"%s"}`, n), nil, "exponent"},
		"exponent 3":               {fmt.Sprintf(`{"kty":"RSA","e":"Aw","n":"%s"}`, n), rsaAlgorithms, ""},
		"exponent 2³²+1":           {fmt.Sprintf(`{"kty":"RSA","e":"AQAAAAE","n":"%s"}`, n), nil, "exponent"},
		"padding":                  {fmt.Sprintf(`{"kty":"RSA","e":"AQAB","n":"%s="}`, n), nil, "malformed"},
		"P-256":                    {ecWith("P-256", x, y), []string{"ES256"}, ""},
		"P-384":                    {ecWith("P-384", x384, y384), []string{"ES384"}, ""},
		"P-384 as P-256":           {ecWith("P-256", x384, y384), nil, "coordinates"},
		"P-256 as P-384":           {ecWith("P-384", x, y), nil, "coordinates"},
		"not on the curve":         {ecWith("P-256", x, x), nil, "not on its curve"},
		"zero":                     {ecWith("P-256", ed, ed), nil, "not on its curve"},
		"short coordinates":        {ecWith("P-256", x, short), nil, "coordinates"},
		"uneven coordinates":       {ecWith("P-256", enc(make([]byte, 33)), short), nil, "coordinates"},
		"no coordinates":           {`{"kty":"EC","crv":"P-256"}`, nil, "coordinates"},
		"a weak curve":             {ecWith("P-224", x, y), nil, "curve"},
		"another curve":            {ecWith("secp256k1", x, y), nil, "curve"},
		"no curve":                 {ecWith("", x, y), nil, "curve"},
		"Ed25519":                  {fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":"%s"}`, ed), []string{"EdDSA"}, ""},
		"Ed25519, short":           {fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":"%s"}`, short), nil, "Ed25519"},
		"X25519":                   {fmt.Sprintf(`{"kty":"OKP","crv":"X25519","x":"%s"}`, ed), nil, "Ed25519"},
		"a shared secret":          {`{"kty":"oct","k":"c2VjcmV0"}`, nil, "shared secret"},
		"an unknown type":          {`{"kty":"LWE"}`, nil, "type"},
		"a type in another case":   {fmt.Sprintf(`{"kty":"rsa","e":"AQAB","n":"%s"}`, n), nil, "type"},
		"no type":                  {`{}`, nil, "type"},
		"null":                     {`null`, nil, "type"},
		"a number":                 {`7`, nil, "malformed"},
		"a modulus that is a list": {`{"kty":"RSA","e":"AQAB","n":[1]}`, nil, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := fmt.Sprintf(`{"kty":"OKP","kid":"good","crv":"Ed25519","x":"%s"}`, enc(make([]byte, 32)))
			set, leftOut, err := parseKeySet([]byte(`{"keys":[` + c.key + `,` + good + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			if k := set.keys[len(set.keys)-1]; k.id != "good" {
				t.Errorf("the next key is %+v", k)
			}
			if c.leftOut != "" {
				if len(set.keys) != 1 || len(leftOut) != 1 || !strings.Contains(leftOut[0].Error(), c.leftOut) {
					t.Errorf("%d keys, %v; want it left out because of %q", len(set.keys), leftOut, c.leftOut)
				}
				return
			}
			if len(set.keys) != 2 || !slices.Equal(set.keys[0].algorithms, c.want) {
				t.Errorf("got %+v, %v; want %v", set.keys, leftOut, c.want)
			}
		})
	}
}

// A key is used with its own algorithms only, also where tokens name no key.
func TestFittingKeys(t *testing.T) {
	t.Parallel()
	x, y := point(t, elliptic.P256())
	x384, y384 := point(t, elliptic.P384())
	set, _, err := parseKeySet(fmt.Appendf(nil, `{"keys":[
		{"kty":"EC","kid":"a","crv":"P-256","x":"%s","y":"%s"},
		{"kty":"EC","kid":"b","crv":"P-384","x":"%s","y":"%s"},
		{"kty":"RSA","kid":"b","e":"AQAB","n":"%s"},
		{"kty":"OKP","crv":"Ed25519","x":"%s"}]}`, x, y, x384, y384, modulus(2048), enc(make([]byte, 32))))
	if err != nil {
		t.Fatal(err)
	}
	a, b, c, empty := "a", "b", "c", ""
	for _, want := range []struct {
		algorithm string
		id        *string
		keys      int
	}{
		{"ES256", &a, 1}, {"ES384", &a, 0}, {"ES256", &b, 0}, {"ES384", &b, 1}, {"RS256", &b, 1}, {"PS512", &b, 1},
		{"ES256", nil, 1}, {"ES384", nil, 1}, {"RS256", nil, 1}, {"EdDSA", nil, 1}, {"EdDSA", &empty, 1},
		{"ES256", &c, 0}, {"HS256", &b, 0}, {"HS256", nil, 0}, {"none", nil, 0}, {"", nil, 0}, {"EdDSA", &a, 0},
	} {
		if got := set.fitting(want.algorithm, want.id); len(got) != want.keys {
			t.Errorf("%d keys fit %+v", len(got), want)
		}
	}
	if got := (*keySet)(nil).fitting("RS256", nil); got != nil {
		t.Errorf("no keys fit %v", got)
	}
}

// A key that the issuer takes back is believed until the keys are read again: a file costs
// nothing to read, also where it is written as a URL.
func TestHowOftenKeysAreReadAgain(t *testing.T) {
	t.Parallel()
	for where, want := range map[string]time.Duration{
		"https://login.example.com/jwks": 5 * time.Minute, "http://localhost/jwks": 5 * time.Minute,
		"/etc/jwks.json": 10 * time.Second, "file:///etc/jwks.json": 10 * time.Second,
	} {
		if s, err := newSource(where, nil); err != nil || s.every != want {
			t.Errorf("%s is read every %v, %v; want %v", where, s.every, err, want)
		}
	}
}

// Whatever an issuer publishes, what is taken from it can be used safely.
func FuzzParseKeySet(f *testing.F) {
	hammer.Add(f, []byte(`{"keys":[]}`))
	hammer.Add(f, []byte(`{"keys":[{"kty":"RSA","kid":"1","e":"AQAB","n":"`+modulus(2048)+`"}]}`))
	hammer.Add(f, []byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"`+enc(make([]byte, 32))+`"},{"kty":"oct","k":"AA"}]}`))
	hammer.Fuzz(f, func(t *testing.T, raw []byte) {
		set, _, err := parseKeySet(raw)
		if err != nil {
			return
		}
		for _, k := range set.keys {
			for _, a := range k.algorithms {
				if !slices.Contains(allAlgorithms, a) {
					t.Errorf("a key for %q", a)
				}
			}
			if r, ok := k.public.(*rsa.PublicKey); ok && (r.N.BitLen() < minRSA || r.E < 3) {
				t.Errorf("a weak key: %v", r)
			}
		}
	})
}
