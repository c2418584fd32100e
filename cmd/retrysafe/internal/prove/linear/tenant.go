package linear

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// A tenant must not find out anything about the others.
type tenant struct {
	name string
	// token is in every answer that is the tenant's, and in no other.
	token string
}

// The tenants' names are such that a store which joins them with a key, folds, trims,
// cuts or decodes them, or compares prefixes, takes one for another.
var (
	// asScopes are names as programs may choose them.
	asScopes = []string{"a", "a:b", "a:b:c", "ab", "A", "a\x00", "a\xff", retrysafe.SystemScope("a")}
	// asPrincipals are names as authentication may find them. No program has one.
	asPrincipals = []string{"w", "w:b", "w:b:c", "wb", "W", "w ", "w\xff", "w\ufffd"}
	// invalidPrincipals are what a guard must take for no tenant at all.
	invalidPrincipals = []string{"", "\x00", retrysafe.SystemScope("a"), "a\x00", "a\n", "a\x1fby\x1fb", "a\x7f", strings.Repeat("a", 2000)}
)

func tenantsOf(names []string) (all []*tenant) {
	for _, name := range names {
		all = append(all, &tenant{name: name, token: "token-" + rand.Text()})
	}
	return all
}

// Every tenant uses all of the keys. Those of a program may be any bytes.
var (
	anyKeys = []string{
		"c", "b:c", "b", ":b:c", "bc", "c:", "C", " c", "c ", "\x00", "\x00c", "c\x00", "\xff", "\xffc", "\ufffd", "b\x1fc", "%", "_", "'", "\u00e7", "c\u0327",
		strings.Repeat("c", 1023), strings.Repeat("c", 1024),
	}
	textKeys = []string{"c", "b:c", "b", ":b:c", "bc", "c:", "C", "%", "_", "'", "b/c", "../c", "c%00", "%63", "null", strings.Repeat("c", 254), strings.Repeat("c", 255)}
)

// keysOf returns so many keys: the hostile ones, and others beside them.
func keysOf(hostile []string, n int) []string {
	keys := append([]string(nil), hostile[:min(n, len(hostile))]...)
	for i := len(keys); i < n; i++ {
		keys = append(keys, fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i))
	}
	return keys
}
