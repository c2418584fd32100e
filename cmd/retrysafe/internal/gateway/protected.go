package gateway

import (
	"maps"
	"net/http"
	"strings"

	"github.com/retrysafe/retrysafe/httpkey"
)

// removal is for a request whose Connection header would have a header removed on the
// way to the service that the gateway has decided by.
var removal = httpkey.Problem{
	Code: "connection-removes-header", Status: http.StatusBadRequest,
	Title: "Connection names a header that must reach the service",
	Detail: "Connection lists headers that a proxy removes, and one that says whose request this is, or which request, is among them. " +
		"The request was not executed. Send it without that name in Connection.",
}

// noteProtected collects the headers that a client must not have removed: those that the
// gateway decides by or the service takes for its word, credentials, and what counts in a
// fingerprint.
func (g *Gateway) noteProtected() {
	g.protected = maps.Clone(g.trustedHeaders)
	for _, name := range []string{"Authorization", "Cookie", "Host", "Content-Type", "Idempotency-First-Sent"} {
		g.protected[name] = true
	}
	for _, rt := range g.table.order {
		if !rt.guards() {
			continue
		}
		for _, name := range rt.fields().Headers {
			g.protected[http.CanonicalHeaderKey(name)] = true
		}
	}
	delete(g.protected, "") // of routes without a forwarded key
}

// removesProtected reports whether a request's Connection header names a protected one.
// A proxy removes what it names, so the service would run an identified request as one of
// an anonymous caller, or a request other than the one that was fingerprinted. HTTP/2 has
// no such header, and net/http refuses it there.
func (g *Gateway) removesProtected(h http.Header) bool {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if g.protected[http.CanonicalHeaderKey(strings.TrimSpace(name))] {
				return true
			}
		}
	}
	return false
}
