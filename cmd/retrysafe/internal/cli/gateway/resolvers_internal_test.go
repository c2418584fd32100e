package gateway

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/janitor/httpresolver"
)

func TestResolversAreAnnounced(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		r   config.Resolver
		off bool
	}{
		"acme for unknown outcomes of POST /a, POST /b":                                                                     {config.Resolver{Name: "acme", Routes: []string{"POST /a", "POST /b"}}, false},
		"api.example.com for unknown outcomes of all routes that no other resolver names":                                   {config.Resolver{Lookup: httpresolver.Lookup{URL: "https://api.example.com/{key}"}}, false},
		"a:1 for unknown outcomes of all routes that no other resolver names; janitor.off, so this gateway does not ask it": {config.Resolver{Endpoint: "https://a:1/x"}, true},
	} {
		if got := resolverText(&c.r, c.off); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
