package identity

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// Settings are what decides which record a request meets, by the names of the
// configuration's fields. A setting that has its default is not among them.
type Settings map[string]string

// The defaults of settings, which are not noted. A setting with another name has none.
var defaults = map[string]string{
	"profile":              "ietf",
	"encryption.keys_file": "none",
	"defaults.key_header":  "Idempotency-Key",
	"defaults.scope":       "tenant",
	"defaults.bind":        "none",
}

// defaultOf returns what a setting is that is not noted.
func defaultOf(name string) string {
	switch value, ok := defaults[name]; {
	case ok:
		return value
	case strings.HasPrefix(name, "routes["):
		return "as in defaults"
	default:
		return "not set"
	}
}

// Of returns the settings of a configuration that is complete and checked. Keys are those
// of its encryption, or nil.
func Of(c *config.Config, keys *sealed.Keyring) Settings {
	s := Settings{}
	s.set("tenant", tenantOf(&c.Tenant))
	s.set("profile", c.Profile) // a key's quotes are part of it in one, and not in the other
	if keys != nil {
		// Derived from the index secret, which names records and keys their fingerprints.
		s.set("encryption.keys_file", "keys "+hex.EncodeToString(keys.Derive("deployment identity")[:8]))
	}
	base := lookupOf("", &c.Defaults)
	s.set("defaults.key_header", base.keyHeader)
	s.set("defaults.scope", base.scope)
	s.set("defaults.bind", base.bind)
	bound := c.Defaults.BindPrincipal
	for _, r := range listed(c.Routes, base) {
		s.set("routes["+r.pattern+"]", r.lookup.String())
		bound = bound || r.bind != "none"
	}
	if bound {
		s.set("tenant.principal", principalOf(&c.Tenant))
	}
	return s
}

func (s Settings) set(name, value string) {
	if value != "" && value != defaults[name] {
		s[name] = value
	}
}

// tenantOf returns where a tenant's name comes from. Which proxies are trusted, and how
// a token is verified, decides whether a request is served, not which record it meets.
func tenantOf(t *config.Tenant) string {
	switch t.From {
	case "header":
		return "header:" + http.CanonicalHeaderKey(t.Name)
	case "jwt":
		return "jwt:" + t.Claim + " of " + t.Issuer
	default:
		return t.From
	}
}

func principalOf(t *config.Tenant) string {
	if t.From == "header" {
		return http.CanonicalHeaderKey(t.Principal)
	}
	return t.Principal
}

// A lookup is how the record of a request is found.
type lookup struct{ keyHeader, scope, bind string }

func (l lookup) String() string {
	return fmt.Sprintf("key_header %s, scope %s, bind %s", l.keyHeader, l.scope, l.bind)
}

// lookupOf returns the lookup of a route, or without a pattern that of the defaults.
func lookupOf(pattern string, s *config.Settings) lookup {
	l := lookup{"Idempotency-Key", "tenant", "none"}
	if s.KeyHeader != "" {
		l.keyHeader = http.CanonicalHeaderKey(s.KeyHeader)
	}
	if s.PerOperation {
		l.scope = "operation"
		switch {
		case pattern == "" && s.Async:
			l.scope = "operation by method" // the operation of a stored request that no route matches
		case !literal(pattern):
			l.scope = "operation by pattern"
		}
	}
	if s.BindPrincipal {
		l.bind = "principal"
	}
	return l
}

// literal reports whether the operation of a request is method and path, as it is where
// no route matches.
func literal(pattern string) bool {
	path := pathOf(pattern)
	return !strings.Contains(path, "{") && !strings.HasSuffix(path, "/") && (pattern == "" || strings.HasPrefix(path, "/"))
}

// A listedRoute is a route that is part of the identity.
type listedRoute struct {
	pattern string
	lookup
}

// listed returns the routes that are part of the identity: those whose lookup is not that
// of the defaults, and those that may take requests from one of these. So a route that
// changes no lookup may come and go. A route that is off is treated as if it were on.
func listed(routes []config.Route, base lookup) []listedRoute {
	all := make([]listedRoute, len(routes))
	var others []string // patterns with another lookup
	for i := range routes {
		pattern := patternOf(routes[i].Match)
		all[i] = listedRoute{pattern, lookupOf(pattern, &routes[i].Settings)}
		if all[i].lookup != base {
			others = append(others, pattern)
		}
	}
	var chosen []listedRoute
	for _, r := range all {
		taken := r.lookup != base
		for _, other := range others {
			taken = taken || overlap(r.pattern, other)
		}
		if taken {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// patternOf returns a pattern in one spelling.
func patternOf(match string) string {
	pattern := strings.Join(strings.Fields(match), " ")
	path := pathOf(pattern)
	if host, rest, ok := strings.Cut(path, "/"); ok {
		return strings.TrimSuffix(pattern, path) + strings.ToLower(host) + "/" + rest
	}
	return pattern
}

// pathOf returns a pattern without its method: a path, with its host if it has one.
func pathOf(pattern string) string {
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		return rest
	}
	return pattern
}

// overlap reports whether one request could match both patterns. It may report true for
// two that no request matches, and never false for two that one does.
func overlap(a, b string) bool {
	first, firstOpen := fixed(a)
	second, secondOpen := fixed(b)
	return first == second || firstOpen && strings.HasPrefix(second, first) || secondOpen && strings.HasPrefix(first, second)
}

// fixed returns the segments of a pattern's path that are the same in all requests, each
// with a slash behind it, and whether others may follow. Whether a path ends with a slash
// does not count: the mux may take one for the other.
func fixed(pattern string) (segments string, open bool) {
	_, path, _ := strings.Cut(pathOf(pattern), "/") // a pattern without a host is for all hosts
	path, _, wild := strings.Cut(path, "{")
	if wild || path == "" || strings.HasSuffix(path, "/") {
		return path, true
	}
	return path + "/", false
}
