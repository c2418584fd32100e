package gateway

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// resolverText returns the name of a resolver and what it is asked about.
func resolverText(r *config.Resolver, janitorOff bool) string {
	name := r.Name
	if at, err := url.Parse(cmp.Or(r.Endpoint, r.Lookup.URL)); name == "" && err == nil {
		name = at.Host
	}
	about := "all routes that no other resolver names"
	if len(r.Routes) > 0 {
		about = strings.Join(r.Routes, ", ")
	}
	if janitorOff {
		about += "; janitor.off, so this gateway does not ask it"
	}
	return name + " for unknown outcomes of " + about
}
