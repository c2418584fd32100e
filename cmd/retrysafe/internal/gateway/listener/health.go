package listener

import (
	"errors"
	"io"
	"net/http"
)

// Where the health of the server is asked for among its clients' own paths. The admin
// listener has it at /livez and /readyz.
const (
	livePath  = "/.retrysafe/livez"
	readyPath = "/.retrysafe/readyz"
)

var errDraining = errors.New("draining")

// ready says what keeps the server from serving.
func (s *Server) ready() error {
	if s.draining.Load() {
		return errDraining
	}
	return s.current.Load().app.Ready()
}

// isHealth reports whether a request of a client asks for the health of the server, and
// isAdminHealth the same of an operator.
func isHealth(r *http.Request) bool      { return asks(r, livePath, readyPath) }
func isAdminHealth(r *http.Request) bool { return asks(r, "/livez", "/readyz") }

func asks(r *http.Request, live, ready string) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.URL.Path == live || r.URL.Path == ready)
}

// serveHealth answers for the server, if that is what is asked for. Clients do not get
// the reason why it is not ready.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	switch r.URL.Path {
	case livePath:
		answer(w, http.StatusOK, "ok")
	case readyPath:
		s.serveReady(w, false)
	default:
		return false
	}
	return true
}

// serveReady answers with the reason if the caller is trusted with it.
func (s *Server) serveReady(w http.ResponseWriter, trusted bool) {
	err := s.ready()
	switch {
	case err == nil:
		answer(w, http.StatusOK, "ok")
	case trusted || errors.Is(err, errDraining):
		answer(w, http.StatusServiceUnavailable, logged(err.Error(), maxText))
	default:
		answer(w, http.StatusServiceUnavailable, "not ready")
	}
}

func answer(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}
