package gateway

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
)

// isWebSocket reports whether a request asks for a WebSocket, and for nothing else. Other
// upgrades are not passed on: a server may always answer without switching protocols, so a
// client that offers HTTP/2 on each connection, as Java's does, is served as before; and no
// client gets a connection to the upstream on which requests pass no guard.
func isWebSocket(r *http.Request) bool {
	lines := r.Header["Upgrade"]
	return r.Method == http.MethodGet && len(lines) == 1 && strings.EqualFold(lines[0], "websocket")
}

// upgrade passes a request for a WebSocket on, and the connection that it becomes.
func (p *passthrough) upgrade(w http.ResponseWriter, r *http.Request) {
	proxy := httputil.ReverseProxy{
		Rewrite:   func(pr *httputil.ProxyRequest) { p.g.rewriteTarget(pr.In, pr.Out) },
		Transport: p.g.upstream.plain, ModifyResponse: p.answered, ErrorHandler: p.failed,
		BufferPool: &copyBuffers, ErrorLog: slog.NewLogLogger(p.g.logger.Handler(), slog.LevelDebug),
	}
	if r.Body != nil && r.Body != http.NoBody {
		p.body = &requestBody{ReadCloser: r.Body}
		r = r.WithContext(r.Context()) // a copy: net/http looks at the body of the request itself
		r.Body = p.body
	}
	proxy.ServeHTTP(w, r)
}
