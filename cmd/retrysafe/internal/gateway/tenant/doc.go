// Package tenant says whose request it is.
//
//	scope := tenant.Header("X-Tenant-Id", trusted)   // a proxy in front knows
//	scope := tenant.Bearer()                         // each token is a tenant
//	scope := jwt.Tenant                              // a claim of a token that is verified here
//	scope := tenant.None()                           // one tenant for all
//
// There are no fall-backs: a request whose tenant is not certain is refused.
//
// A scope begins with its kind: "header:acme", "jwt:acme", "jwt-number:42", "bearer:"
// and a hash, or just "none". So two kinds never share a scope, whatever the names are. A change of
// the kind changes all scopes: keys of before are not found under the new ones, and a
// retry that spans the change runs again. Change it when no client retries. Another
// header, claim or issuer of the same kind keeps the scopes, so the same value must go
// on to mean the same tenant.
package tenant

import (
	"encoding/json"
	"net/http"
)

// A Func returns the scope of a request, or an error that is one of this package's.
// It may be called concurrently. It is an alias, so that any function of this form
// will do where one is asked for.
type Func = func(*http.Request) (string, error)

// None returns a Func for which all requests are of one tenant: every caller can get
// the answer of every key that it knows or guesses. It suits a service with one client,
// or one whose clients trust each other.
func None() Func { return func(*http.Request) (string, error) { return "none", nil } }

// maxName bounds the name of a tenant or principal, in bytes. Two of them and an
// operation fit into one scope.
const maxName = 256

// ScopeOf returns the scope of a tenant that a document names in place of a request,
// where callers are told apart by a header, by a claim of a token, or not at all. Number
// says that the name is a number in the document, as a claim may be. It reports false if
// no request could have that scope.
func ScopeOf(from, name string, number bool) (string, bool) {
	switch {
	case from == "none":
		return "none", true
	case from == "header" && isName(name):
		return "header:" + name, true
	case from == "jwt" && number:
		scope := (&claim{path: []string{"x"}}).scope(map[string]any{"x": json.Number(name)})
		return scope, scope != ""
	case from == "jwt" && isText(name):
		return textScope + name, true
	}
	return "", false
}
