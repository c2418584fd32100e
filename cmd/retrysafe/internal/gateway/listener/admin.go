package listener

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/tokenlimit"
)

// adminBody bounds what operators may send.
const adminBody = 1 << 20

// adminHeaders are on every answer of the admin listener. A page may set its own.
var adminHeaders = [][2]string{
	{"Cache-Control", "no-store"},
	{"Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Referrer-Policy", "no-referrer"},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
}

// serveAdmin serves the operators. Only the health checks need no token. Pages that guard
// themselves see the tokens of their requests alone, so that each is counted once.
func (s *Server) serveAdmin(w http.ResponseWriter, r *http.Request) {
	for _, h := range adminHeaders {
		w.Header().Set(h[0], h[1])
	}
	g := s.current.Load()
	if g.guards && g.admin != nil && !isAdminHealth(r) && r.URL.Path != "/metrics" {
		if g.scrapes(r) {
			answer(w, http.StatusForbidden, "the token for metrics opens /metrics alone")
			return
		}
		s.servePage(w, r)
		return
	}
	who := s.admit(r, g.tokens, g.metricsToken)
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case read && r.URL.Path == "/livez":
		answer(w, http.StatusOK, "ok")
	case read && r.URL.Path == "/readyz":
		s.serveReady(w, who == operator)
	case who == slowed:
		w.Header().Set("Retry-After", strconv.Itoa(int(tokenlimit.Refill/time.Second)))
		answer(w, http.StatusTooManyRequests, "too many wrong tokens from this address")
	case who == scraper && read && r.URL.Path == "/metrics":
		serveOr404(s.o.Metrics, w, r)
	case who == scraper:
		answer(w, http.StatusForbidden, "the token for metrics opens /metrics alone")
	case who != operator:
		w.Header().Add("WWW-Authenticate", `Bearer realm="retrysafe"`)
		w.Header().Add("WWW-Authenticate", `Basic realm="retrysafe", charset="UTF-8"`)
		answer(w, http.StatusUnauthorized, "show the admin token, as a bearer or as the password of any user")
	case s.origin.Check(r) != nil:
		answer(w, http.StatusForbidden, "the request comes from another site")
	case r.URL.Path == "/metrics":
		serveOr404(s.o.Metrics, w, r)
	default:
		s.servePage(w, r)
	}
}

// servePage keeps the App whose page it is at work.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	g := s.enter()
	if g == nil {
		answer(w, http.StatusServiceUnavailable, "draining")
		return
	}
	defer g.leave()
	if g.guards {
		serveOr404(g.admin, w, r) // it bounds bodies itself
		return
	}
	serveOr404(g.admin, w, withBody(r, http.MaxBytesReader(w, r.Body, adminBody)))
}

func serveOr404(h http.Handler, w http.ResponseWriter, r *http.Request) {
	if h == nil {
		answer(w, http.StatusNotFound, "there is nothing here")
		return
	}
	h.ServeHTTP(w, r)
}

// A caller is what the token of a request to the admin listener says of its sender.
type caller uint8

const (
	stranger caller = iota // shows no token, or a wrong one
	slowed                 // has shown too many wrong ones
	scraper                // shows the token for metrics
	operator
)

// A digest stands for a token. Digests have one length and are compared in constant
// time, so that how long that takes tells nothing of the token.
type digest [sha256.Size]byte

func digestOf(token string) digest { return sha256.Sum256([]byte(token)) }

// metricsDigest returns the digest of the token for metrics, or nil if there is none.
func metricsDigest(token string) *digest {
	if token == "" {
		return nil
	}
	d := digestOf(token)
	return &d
}

// digestsOf returns the digests of the operators' tokens.
func digestsOf(a *config.Admin) (all []digest) {
	for _, p := range a.People() {
		all = append(all, digestOf(string(p.Token)))
	}
	return all
}

// scrapes reports whether a request shows the token for metrics.
func (g *generation) scrapes(r *http.Request) bool {
	if g.metricsToken == nil {
		return false
	}
	got := digestOf(shown(r))
	return subtle.ConstantTimeCompare(got[:], g.metricsToken[:]) == 1
}

// admit classifies the caller by its token. Metrics is nil if scrapers have no token of
// their own.
func (s *Server) admit(r *http.Request, want []digest, metrics *digest) caller {
	token := shown(r)
	if token == "" {
		return stranger
	}
	got := digestOf(token)
	found := 0
	for i := range want {
		found |= subtle.ConstantTimeCompare(got[:], want[i][:])
	}
	if found == 1 {
		return operator
	}
	if metrics != nil && subtle.ConstantTimeCompare(got[:], metrics[:]) == 1 {
		return scraper
	}
	from := admission.AddressOf(r.RemoteAddr)
	if !s.tokenLimit.Wrong(from) {
		return slowed
	}
	s.o.Logger.Warn("listener: wrong admin token", "remote", from.String())
	return stranger
}

// shown returns the token that a request shows: as a bearer or, for browsers and
// scrapers, as the password of whatever user.
func shown(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
