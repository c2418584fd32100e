package rawhead

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// CheckTarget reports what is wrong with where a request goes: with its target and its
// host, which HTTP/2 has in pseudo-headers. It has the same rules for both protocols, and
// is for requests as a server's handler gets them: what net/http itself refuses does not
// come that far. The error is an [ErrRefused], for [Refuse].
func CheckTarget(r *http.Request) error {
	why := targetOffence(r)
	if why == "" {
		why = hostOffence(r)
	}
	if why != "" {
		return refusedError{why}
	}
	return nil
}

func targetOffence(r *http.Request) offence {
	target := r.RequestURI
	if target == "" {
		return badTarget
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return badTarget
		}
	}
	switch {
	case r.Method == http.MethodConnect:
		return badUpgrade
	case target[0] == '/':
		return ""
	case target == "*" && r.Method == http.MethodOptions:
		return ""
	case r.ProtoMajor != 1, r.URL.Host == "", r.URL.User != nil:
		return badTarget
	case r.URL.Path != "" && r.URL.Path[0] != '/':
		return badTarget
	}
	return ""
}

func hostOffence(r *http.Request) offence {
	if r.Host == "" && r.ProtoAtLeast(1, 1) {
		return noHost
	}
	for i := range len(r.Host) {
		if !inHost[r.Host[i]] {
			return badHost
		}
	}
	// HTTP/1 has its Host here only if there are several, HTTP/2 beside :authority.
	for _, other := range r.Header["Host"] {
		if other != r.Host {
			return manyHosts
		}
	}
	return ""
}

// inHost are the bytes that net/http allows in a Host header of HTTP/1.
var inHost = func() (t [256]bool) {
	for c := '0'; c <= 'z'; c++ {
		t[c] = c <= '9' || c >= 'a' || c >= 'A' && c <= 'Z'
	}
	for _, c := range "!$%&'()*+,-.:;=[]_~" {
		t[c] = true
	}
	return t
}()

// Refuse answers a request that CheckTarget has refused.
func Refuse(w http.ResponseWriter, err error) {
	why := badTarget
	if refused, ok := errors.AsType[refusedError](err); ok {
		why = refused.why
	}
	status, _, body := why.problem()
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Language", "en")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.Copy(w, strings.NewReader(body)) // the client may be gone
}
