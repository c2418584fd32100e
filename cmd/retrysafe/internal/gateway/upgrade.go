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

// withoutUpgrade returns r without its Upgrade header. A server may always answer
// without switching protocols, so a client that offers HTTP/2 on each connection, as
// Java's does, is served as before; and no client gets a connection to the upstream on
// which requests pass no guard.
func withoutUpgrade(r *http.Request) *http.Request {
	if _, ok := r.Header["Upgrade"]; !ok {
		return r
	}
	stays := *r
	stays.Header = maps.Clone(r.Header)
	delete(stays.Header, "Upgrade")
	return &stays
}
