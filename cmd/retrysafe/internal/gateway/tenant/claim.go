package tenant

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// A claim is where in a token a name is.
type claim struct {
	index    int      // in verified.scopes
	path     []string // nil: nowhere
	unusable error    // what a token without a usable name gets
}

// pathOf reads the name of a claim. What it means depends on the name alone, never
// on the token, so no token can have its tenant in two places.
func pathOf(name string) ([]string, error) {
	var path []string
	switch pointer, ok := strings.CutPrefix(name, "/"); {
	case ok:
		path = strings.Split(pointer, "/")
		for i := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i])
		}
	case strings.Contains(name, "://"):
		path = []string{name}
	default:
		path = strings.Split(name, ".")
	}
	if slices.Contains(path, "") {
		return nil, fmt.Errorf(`claim %q: it has a part without a name; write "org", "org.id", "https://example.com/org", or "/org/id"`, name)
	}
	return path, nil
}

// Scopes of claims begin with the type of the claim: 1 and "1" are two tenants, because an
// issuer that numbers its organisations may let them choose a text of their own.
const (
	textScope   = "jwt:"
	numberScope = "jwt-number:"
)

// scope returns the scope that the claim names, or "" if it names none. A name is an
// integer, or a string that is printable from end to end.
func (c *claim) scope(claims map[string]any) string {
	if len(c.path) == 0 {
		return ""
	}
	last := len(c.path) - 1
	for _, part := range c.path[:last] {
		claims, _ = claims[part].(map[string]any)
	}
	switch v := claims[c.path[last]].(type) {
	case string:
		if isText(v) {
			return textScope + v
		}
	case json.Number:
		if n := v.String(); len(n) <= maxName && n != "-0" && !strings.ContainsAny(n, ".eE") {
			return numberScope + n
		}
	}
	return ""
}

// isText reports whether s can be a name. The replacement character, which JSON
// decoders put for what they cannot read, must not be in it: different names would
// become the same.
func isText(s string) bool {
	if s == "" || len(s) > maxName || s != strings.TrimSpace(s) {
		return false
	}
	for _, c := range s {
		if !printable.Is(c) {
			return false
		}
	}
	return true
}

// claimSet is the claims of one token, with numbers as they were written: to a
// float, 9007199254740993 and 9007199254740992 are one tenant.
type claimSet struct{ mapClaims }

// UnmarshalJSON is called with a whole, valid value.
func (c *claimSet) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	if err := dec.Decode(&c.mapClaims); err != nil {
		return errors.New("the claims are not an object")
	}
	return nil
}
