package tenant_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

const (
	issuerName   = "https://login.example.com/"
	audienceName = "https://api.example.com/"
	tokenLife    = 10 * time.Minute
)

// An issuer signs tokens and publishes its keys over HTTP.
type issuer struct {
	url  string
	hits atomic.Int64 // how often the keys were asked for

	mu     sync.Mutex
	keys   []signer
	answer http.HandlerFunc // instead of the keys
}

// A signer is a key with its id.
type signer struct {
	id      string
	method  jwt.SigningMethod
	private crypto.Signer
	extra   map[string]any // more members of its JWK
}

var (
	rsaPrivate = sync.OnceValue(func() crypto.Signer { k, _ := rsa.GenerateKey(rand.Reader, 2048); return k })
	rsaOther   = sync.OnceValue(func() crypto.Signer { k, _ := rsa.GenerateKey(rand.Reader, 2048); return k })
	edPrivate  = sync.OnceValue(newEd)
)

func newEd() crypto.Signer { _, k, _ := ed25519.GenerateKey(rand.Reader); return k }

func newEC(curve elliptic.Curve) crypto.Signer {
	k, _ := ecdsa.GenerateKey(curve, rand.Reader)
	return k
}

// newIssuer returns an issuer with one Ed25519 key, "ed-1".
func newIssuer(t testing.TB) *issuer {
	t.Helper()
	is := &issuer{keys: []signer{{id: "ed-1", method: jwt.SigningMethodEdDSA, private: edPrivate()}}}
	server := httptest.NewServer(is)
	t.Cleanup(server.Close)
	is.url = server.URL + "/.well-known/jwks.json"
	return is
}

func (is *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	is.hits.Add(1)
	is.mu.Lock()
	answer := is.answer
	is.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	_, _ = w.Write(is.keySet())
}

// RoundTrip answers in this process, however long that takes: while a request waits there
// are two seconds for it, which on a busy machine are too short for a network.
func (is *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	is.ServeHTTP(w, r)
	if err := r.Context().Err(); errors.Is(err, context.Canceled) {
		return nil, err
	}
	return w.Result(), nil
}

// overTheNetwork asks the issuer as a gateway does.
func overTheNetwork(o *tenant.Options) { o.Transport = nil }

// publish replaces the keys.
func (is *issuer) publish(keys ...signer) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.keys = keys
}

// answerWith replaces the answer; nil are the keys again.
func (is *issuer) answerWith(f http.HandlerFunc) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.answer = f
}

func (is *issuer) keySet() []byte {
	is.mu.Lock()
	defer is.mu.Unlock()
	list := []map[string]any{}
	for _, s := range is.keys {
		list = append(list, s.jwk())
	}
	text, _ := json.Marshal(map[string]any{"keys": list})
	return text
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (s *signer) jwk() map[string]any {
	m := map[string]any{"use": "sig"}
	if s.id != "" {
		m["kid"] = s.id
	}
	switch k := s.private.Public().(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		point, _ := k.Bytes()
		half := len(point) / 2
		m["kty"], m["crv"] = "EC", k.Curve.Params().Name
		m["x"], m["y"] = b64(point[1:1+half]), b64(point[1+half:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(k)
	}
	for name, value := range s.extra {
		m[name] = value
	}
	return m
}

// options are those of a JWT that believes the issuer.
func (is *issuer) options() tenant.Options {
	return tenant.Options{Claim: "org", JWKS: is.url, Issuer: issuerName, Audience: audienceName,
		Transport: is, Logger: slog.New(slog.DiscardHandler)}
}

func (is *issuer) jwt(t testing.TB, change ...func(*tenant.Options)) *tenant.JWT {
	t.Helper()
	o := is.options()
	for _, c := range change {
		c(&o)
	}
	return must1[*tenant.JWT](t)(tenant.NewJWT(o))
}

// A draft is a token before it is signed.
type draft struct {
	by     signer
	header map[string]any
	claims jwt.MapClaims
}

func with(claim string, value any) func(*draft) {
	return func(d *draft) {
		if value == nil {
			delete(d.claims, claim)
		} else {
			d.claims[claim] = value
		}
	}
}

func header(name string, value any) func(*draft) {
	return func(d *draft) {
		if value == nil {
			delete(d.header, name)
		} else {
			d.header[name] = value
		}
	}
}

// by signs with another key, and says so.
func by(s signer) func(*draft) {
	return func(d *draft) {
		d.by, d.header["alg"], d.header["kid"] = s, s.method.Alg(), s.id
	}
}

// at issues the token at the time of a clock.
func at(c *clock) func(*draft) {
	return func(d *draft) {
		d.claims["iat"], d.claims["nbf"], d.claims["exp"] = c.now().Unix(), c.now().Unix(), c.now().Add(tokenLife).Unix()
	}
}

// token returns a token of the first key, for org acme and alice.
func (is *issuer) token(t testing.TB, change ...func(*draft)) string {
	t.Helper()
	is.mu.Lock()
	first := is.keys[0]
	is.mu.Unlock()
	d := &draft{header: map[string]any{"typ": "JWT"}, claims: jwt.MapClaims{
		"iss": issuerName, "aud": audienceName, "sub": "alice", "org": "acme"}}
	by(first)(d)
	at(newClock())(d)
	for _, c := range change {
		c(d)
	}
	unsigned := jwt.Token{Header: d.header, Claims: d.claims, Method: d.by.method}
	return must1[string](t)(unsigned.SignedString(any(d.by.private)))
}

// A clock goes when it is told to.
type clock struct {
	start time.Time
	past  atomic.Int64
}

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) now() time.Time { return c.start.Add(time.Duration(c.past.Load())) }

func (c *clock) pass(d time.Duration) { c.past.Add(int64(d)) }

// A logbook is a log that tests can read.
type logbook struct {
	mu   sync.Mutex
	text []byte
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func logTo(l *logbook) func(*tenant.Options) {
	return func(o *tenant.Options) { o.Logger = slog.New(slog.NewTextHandler(l, nil)) }
}
