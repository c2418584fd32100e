package gateway

import (
	"maps"
	"net/http"
	"strings"
)

// isWebSocket reports whether a request asks for a WebSocket, and for nothing else.
func isWebSocket(r *http.Request) bool {
	lines := r.Header["Upgrade"]
	return r.Method == http.MethodGet && len(lines) == 1 && strings.EqualFold(lines[0], "websocket")
}

// staying returns r without a wish to switch protocols. Whoever answers it as what it
// is does what HTTP asks of him. A client that offers HTTP/2 on each connection, as
// Java's does, notices nothing; and nobody gets a line to the upstream on which
// requests are seen by no guard.
func staying(r *http.Request) *http.Request {
	if _, ok := r.Header["Upgrade"]; !ok {
		return r
	}
	stays := *r
	stays.Header = maps.Clone(r.Header)
	delete(stays.Header, "Upgrade")
	return &stays
}
