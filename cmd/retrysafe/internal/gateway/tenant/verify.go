package tenant

import (
	"context"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

type mapClaims = jwt.MapClaims

// What a client is told of its token. The parser's own errors quote the token.
var (
	errNotJWT      = invalid("the bearer token is not a JWT that is understood here")
	errUnsigned    = invalid("the bearer token is not signed by its issuer with an algorithm that is accepted here")
	errUnknownKey  = invalid("the bearer token is signed with a key that its issuer does not publish")
	errNotYet      = invalid("the bearer token is not valid yet; is the clock of its issuer right?")
	errIssuer      = invalid("the bearer token is from another issuer")
	errAudience    = invalid("the bearer token is for another audience")
	errClaims      = invalid("the bearer token must have the claims exp, iss and aud")
	errUnspecified = invalid("the bearer token cannot be accepted")
)

// leeway is how far the issuer's clock may be ahead of ours. It does not prolong a
// token: what has expired is of no use any more.
const leeway = 30 * time.Second

func (j *JWT) newParser(o *Options) *jwt.Parser {
	return jwt.NewParser(
		jwt.WithValidMethods(o.Algorithms),
		jwt.WithIssuer(o.Issuer),
		jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(func() time.Time { return j.now() }),
	)
}

// verify returns what a token says, if all of it holds: signature, issuer, audience
// and time. Nothing that the token itself proposes is followed, neither keys nor
// addresses of keys.
func (j *JWT) verify(ctx context.Context, token string) (*verified, error) {
	var claims claimSet
	var keys *keySet
	var refused error
	_, err := j.parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		var fitting []jwt.VerificationKey
		fitting, keys, refused = j.keysFor(ctx, t)
		return jwt.VerificationKeySet{Keys: fitting}, refused
	})
	now := j.now()
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, told(err)
	}
	exp, err := claims.GetExpirationTime()
	if err != nil || exp == nil {
		return nil, errClaims
	}
	v := &verified{by: keys, until: now.Add(maxAge)}
	if v.until.After(exp.Time) {
		v.until = exp.Time
	}
	if !now.Before(v.until) {
		return nil, ErrExpired
	}
	for _, c := range j.known() {
		v.scopes = append(v.scopes, c.scope(claims.mapClaims))
	}
	return v, nil
}

// keysFor returns the keys that may have signed a token, and the set that they are
// from.
func (j *JWT) keysFor(ctx context.Context, t *jwt.Token) ([]jwt.VerificationKey, *keySet, error) {
	var id *string
	if value, ok := t.Header["kid"]; ok {
		text, ok := value.(string)
		if !ok {
			return nil, nil, errNotJWT
		}
		id = &text
	}
	if _, ok := t.Header["crit"]; ok { // names what must be understood, and none of it is
		return nil, nil, errNotJWT
	}
	keys := j.keys.current.Load()
	if fitting := keys.fitting(t.Method.Alg(), id); fitting != nil {
		return fitting, keys, nil
	}
	err := j.keys.ask(ctx)
	keys = j.keys.current.Load()
	fitting := keys.fitting(t.Method.Alg(), id)
	switch {
	case fitting != nil:
		return fitting, keys, nil
	case err != nil || keys == nil:
		return nil, nil, ErrUnavailable
	default:
		return nil, nil, errUnknownKey
	}
}

// told returns what a client is told.
func told(err error) error {
	for _, answer := range []struct{ is, told error }{
		{jwt.ErrTokenMalformed, errNotJWT},
		{jwt.ErrTokenUnverifiable, errUnsigned},
		{jwt.ErrTokenSignatureInvalid, errUnsigned},
		{jwt.ErrTokenInvalidIssuer, errIssuer},
		{jwt.ErrTokenInvalidAudience, errAudience},
		{jwt.ErrTokenRequiredClaimMissing, errClaims},
		{jwt.ErrInvalidType, errClaims},
		{jwt.ErrTokenNotValidYet, errNotYet},
		{jwt.ErrTokenUsedBeforeIssued, errNotYet},
		{jwt.ErrTokenExpired, ErrExpired},
	} {
		if errors.Is(err, answer.is) {
			return answer.told
		}
	}
	return errUnspecified
}
