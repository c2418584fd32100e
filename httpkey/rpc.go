package httpkey

import (
	"net/http"
	"strings"
)

// carriesRPC reports whether a request is one of gRPC, gRPC-Web or a Connect stream.
// Such a protocol puts the outcome of a call behind the body, below a status that is
// always 200, so a guard of HTTP would take each failure for a success. A unary call of
// Connect (application/proto, application/json) is a plain POST, and is guarded like
// any other.
func carriesRPC(h http.Header) bool {
	for _, line := range h["Content-Type"] {
		essence := strings.ToLower(mediaType(line))
		if strings.HasPrefix(essence, "application/grpc") || strings.HasPrefix(essence, "application/connect+") {
			return true
		}
	}
	return false
}
