package tenant

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// Bearer returns a Func for which each token is a tenant
// ("Authorization: Bearer TOKEN"). The scope has a hash of the token, never itself.
//
// A refreshed token is a new scope: a retry under it is a new request. So this suits
// API keys and tokens that outlive a client's retries; for others there is [JWT].
//
// The token is not checked. The upstream still authorises what runs, and a token
// that it refuses leaves no answer behind, but a replay does not ask it again: with a
// token that was revoked meanwhile one can still get the answers that were given to
// it, until they are forgotten.
func Bearer() Func {
	return func(r *http.Request) (string, error) {
		token, err := bearerToken(r)
		if err != nil {
			return "", unauthorized(err)
		}
		sum := hashOf(bearerHash, token)
		scope := append(make([]byte, 0, 64), "bearer:"...)
		return string(base64.RawURLEncoding.AppendEncode(scope, sum[:])), nil
	}
}

// What a token is hashed for, so that its hash here is of no use elsewhere.
const (
	bearerHash = "retrysafe tenant bearer\x00"
	cacheHash  = "retrysafe tenant cache\x00"
)

func hashOf(purpose, token string) [sha256.Size]byte {
	var space [2 << 10]byte
	return sha256.Sum256(append(append(space[:0], purpose...), token...))
}

// maxToken bounds what is hashed and parsed for one request.
const maxToken = 16 << 10

var (
	errNoToken    = fmt.Errorf(`%w: send "Authorization: Bearer TOKEN"`, ErrMissing)
	errTwoTokens  = invalid("send the Authorization header once")
	errOddToken   = invalid(`send "Authorization: Bearer TOKEN", with a token of visible ASCII characters`)
	errLongToken  = invalid("the bearer token is too long")
	errOtherLogin = invalid(`only "Authorization: Bearer TOKEN" is known here`)
)

// bearerToken returns the token of the Authorization header. Spaces before it do
// not count, so one token has one spelling.
func bearerToken(r *http.Request) (string, error) {
	lines := r.Header["Authorization"]
	switch {
	case len(lines) == 0 || len(lines) == 1 && lines[0] == "":
		return "", errNoToken
	case len(lines) > 1:
		return "", errTwoTokens
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", errOtherLogin
	}
	switch token = strings.TrimLeft(token, " "); {
	case token == "":
		return "", errNoToken
	case len(token) > maxToken:
		return "", errLongToken
	case !isVisible(token):
		return "", errOddToken
	}
	return token, nil
}

// isVisible reports whether s is visible ASCII from end to end.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
