package tenant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A JWT takes names from the claims of bearer tokens, which it verifies: a token that
// has expired, or whose key its issuer has taken back, is refused, also for replays of
// what it did before.
//
// A verified token is remembered for a minute, or until it expires, so that the next
// requests with it cost a hash. A JWT may be used concurrently.
type JWT struct {
	tenant *claim
	parser *jwt.Parser
	keys   *keyring
	seen   cache
	now    func() time.Time

	mu     sync.Mutex
	claims []*claim
}

// Options are what a [JWT] is given. The first four fields are required.
type Options struct {
	// Claim names the tenant: "org", "org.id" for one inside another, or the whole
	// name of one that is a URL ("https://example.com/org"). What these cannot
	// express a JSON pointer can ("/https:~1~1example.com~1claims/org"). It must be a
	// string that can be printed, or an integer; 1 and "1" are two tenants.
	Claim string
	// JWKS is where the issuer's public keys are: an https URL, an http one on this
	// machine, or a file.
	JWKS string
	// Issuer and Audience are what a token must have as iss and in aud.
	Issuer, Audience string

	// Algorithms are those that are accepted. Default RS256, ES256 and EdDSA. Those
	// with a shared secret cannot be chosen.
	Algorithms []string
	// Refresh is how often [JWT.Run] reads the keys again: how long a key that the
	// issuer takes back is still believed. Default 5 min for a URL, 10 s for a file.
	Refresh time.Duration
	// Transport gets the keys. Default one that keeps no connections.
	Transport http.RoundTripper
	// Logger hears of new keys, and of those that cannot be had. Default
	// slog.Default().
	Logger *slog.Logger
}

// NewJWT returns a JWT. It reads no keys: [JWT.Run] does, and a token that none of
// the known keys fits is a reason to look for new ones.
func NewJWT(o Options) (*JWT, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	path, err := pathOf(o.Claim)
	if err != nil {
		return nil, err
	}
	from, err := newSource(o.JWKS, o.Transport)
	if err != nil {
		return nil, fmt.Errorf("jwks: %w", err)
	}
	if o.Refresh > 0 {
		from.every = o.Refresh
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	j := &JWT{now: time.Now, keys: &keyring{source: from, log: o.Logger, now: time.Now}}
	j.parser = j.newParser(&o)
	j.tenant = j.know(o.Claim, path)
	return j, nil
}

// check reports what is missing or dangerous, and fills in the algorithms.
func (o *Options) check() error {
	for _, required := range []struct{ field, value, why string }{
		{"claim", o.Claim, "it names the tenant"},
		{"jwks", o.JWKS, "it has the keys that tokens are signed with"},
		{"issuer", o.Issuer, "tokens of others must not be taken for theirs"},
		{"audience", o.Audience, "a token that was meant for another service must not open this one"},
	} {
		if required.value == "" {
			return fmt.Errorf("%s is required: %s", required.field, required.why)
		}
	}
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(allAlgorithms, a) {
			return fmt.Errorf("algorithm %q cannot be used with public keys; there are %s", a, strings.Join(allAlgorithms, ", "))
		}
	}
	if o.Refresh < 0 {
		return errors.New("refresh is negative")
	}
	return nil
}

// Tenant returns the scope that the token's claim names. It is a [Func].
func (j *JWT) Tenant(r *http.Request) (string, error) { return j.scope(r, j.tenant) }

// Claim returns a Func for another claim of the same tokens, such as that of a
// principal. If the name cannot be one of a claim, it refuses all.
func (j *JWT) Claim(name string) Func {
	path, _ := pathOf(name) // nil is found in no token
	c := j.know(name, path)
	return func(r *http.Request) (string, error) { return j.scope(r, c) }
}

// Run reads the keys now and then, until ctx ends. What goes wrong is logged and
// tried again soon; meanwhile the keys of before are used.
func (j *JWT) Run(ctx context.Context) error {
	for {
		pause := j.keys.source.every
		if j.RunOnce(ctx) != nil {
			pause = min(pause, askPause)
		}
		next := time.NewTimer(time.Duration((0.75 + rand.Float64()/2) * float64(pause)))
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return nil
		}
	}
}

// RunOnce reads the keys now. An error says why they could not be read.
func (j *JWT) RunOnce(ctx context.Context) error {
	if err := j.keys.refresh(ctx); err != nil {
		return fmt.Errorf("read %s: %w", j.keys.source.where, err)
	}
	return nil
}

// Ready returns ErrUnavailable until the keys were read once.
func (j *JWT) Ready() error {
	if j.keys.current.Load() == nil {
		return ErrUnavailable
	}
	return nil
}

func (j *JWT) scope(r *http.Request, c *claim) (string, error) {
	token, err := bearerToken(r)
	if err != nil {
		return "", unauthorized(err)
	}
	sum, now := hashOf(cacheHash, token), j.now()
	v := j.seen.get(sum)
	if !v.goodFor(c, j.keys.current.Load(), now) {
		if v, err = j.verify(r.Context(), token); err != nil {
			return "", unauthorized(err)
		}
		j.seen.put(sum, v, now)
	}
	if v.scopes[c.index] == "" {
		return "", c.unusable
	}
	return v.scopes[c.index], nil
}

// know adds a claim to those that are taken from each token.
func (j *JWT) know(name string, path []string) *claim {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := &claim{index: len(j.claims), path: path}
	c.unusable = invalid(fmt.Sprintf("the bearer token must have the claim %q, a string of 1 to %d printable characters or an integer", name, maxName))
	j.claims = append(j.claims, c)
	return c
}

// known returns the claims that are taken from a token. They only ever become more.
func (j *JWT) known() []*claim {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clip(j.claims)
}
