package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/internal/tokenlimit"
)

// A Token is a secret that stands for a person.
type Token struct {
	Name   string
	Role   Role
	Secret string
}

// minSecret is how many characters a secret has at least.
const minSecret = 16

// Options configure a [Guard].
type Options struct {
	// Tokens are those of the people that are let in. At least one is required.
	Tokens []Token
	// Prefix is the path under which the console is mounted, without a slash at its end.
	Prefix string
	// Logger gets a warning for each wrong token. Default slog.Default().
	Logger *slog.Logger
	// Now is the clock of the sessions. Default time.Now.
	Now func() time.Time
}

// A Guard lets those requests through that come from a person with a token or a session,
// and not from another site. It is safe for concurrent use and starts no goroutine.
type Guard struct {
	holders  []holder
	prefix   string
	logger   *slog.Logger
	limit    *tokenlimit.Limit
	origin   *http.CrossOriginProtection
	sessions *sessions
}

// A digest stands for a secret. Digests have one length and are compared in constant
// time, so that how long that takes tells nothing of the secret.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// A holder is a person, and the digest of that person's token.
type holder struct {
	Person
	token digest
}

// NewGuard returns a guard, or an error that says which token cannot be used.
func NewGuard(o Options) (*Guard, error) {
	if len(o.Tokens) == 0 {
		return nil, errors.New("there is no token; name at least one, with a role")
	}
	g := &Guard{prefix: o.Prefix, logger: o.Logger, limit: tokenlimit.New(), origin: http.NewCrossOriginProtection(), sessions: newSessions(o.Now)}
	if g.logger == nil {
		g.logger = slog.Default()
	}
	names, secrets := map[string]bool{}, map[digest]bool{}
	for i := range o.Tokens {
		t := &o.Tokens[i]
		h := holder{Person{t.Name, t.Role}, digestOf(t.Secret)}
		switch {
		case strings.TrimSpace(t.Name) == "" || len(t.Name) > maxName || strings.ContainsFunc(t.Name, unprintable):
			return nil, fmt.Errorf("token %d: its name must be printable ASCII of up to %d characters; the audit shows it as the author", i+1, maxName)
		case names[t.Name]:
			return nil, fmt.Errorf("token %q: there are two with this name, and the audit could not tell them apart", t.Name)
		case !h.May(RoleRead):
			return nil, fmt.Errorf("token %q: its role must be read or act", t.Name)
		case len(t.Secret) < minSecret:
			return nil, fmt.Errorf("token %q: it has %d characters; it takes at least %d: openssl rand -hex 32", t.Name, len(t.Secret), minSecret)
		case secrets[h.token]:
			return nil, fmt.Errorf("token %q: another person has the same token", t.Name)
		}
		names[t.Name], secrets[h.token] = true, true
		g.holders = append(g.holders, h)
	}
	return g, nil
}

// maxName bounds the name of a person, so that an entry of the audit holds it.
const maxName = 100

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// headers are on every answer. A page may set its own.
var headers = [][2]string{
	{"Cache-Control", "no-store"},
	{"Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Referrer-Policy", "no-referrer"},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
}

// Refuse answers a request that is not let through.
type Refuse func(w http.ResponseWriter, r *http.Request, status int, code, detail string)

// API lets requests of a person through to next. Others are answered by refuse: 401 without
// a token, 429 after too many wrong ones, 403 from another site.
func (g *Guard) API(next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w)
		p, err := g.authenticate(r)
		switch {
		case errors.Is(err, ErrSlowed):
			w.Header().Set("Retry-After", retryAfter)
			refuse(w, r, http.StatusTooManyRequests, "too-many-wrong-tokens", "too many wrong tokens came from this address")
		case err != nil:
			w.Header().Set("WWW-Authenticate", `Bearer realm="retrysafe"`)
			refuse(w, r, http.StatusUnauthorized, "token-missing", "the token is missing or wrong: show it as Authorization: Bearer TOKEN")
		case g.origin.Check(r) != nil:
			refuse(w, r, http.StatusForbidden, "cross-site", "the request comes from another site")
		default:
			next.ServeHTTP(w, r.WithContext(With(r.Context(), p)))
		}
	})
}

// Pages lets requests of a person through to next, and gives all others to login, which
// asks for the token. A request that changes something and comes from another site is
// answered with 403.
func (g *Guard) Pages(next, login http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w)
		if g.origin.Check(r) != nil {
			http.Error(w, "the request comes from another site", http.StatusForbidden)
			return
		}
		p, err := g.authenticate(r)
		switch {
		case errors.Is(err, ErrSlowed):
			w.Header().Set("Retry-After", retryAfter)
			http.Error(w, "too many wrong tokens came from this address", http.StatusTooManyRequests)
		case err != nil:
			login.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r.WithContext(With(r.Context(), p)))
		}
	})
}

func setHeaders(w http.ResponseWriter) {
	for _, h := range headers {
		w.Header().Set(h[0], h[1])
	}
}

var retryAfter = strconv.Itoa(int(tokenlimit.Refill / time.Second))

// Why a request or a login is not let through.
var (
	// ErrToken: there is no token and no session, or the token is wrong.
	ErrToken = errors.New("the token is missing or wrong")
	// ErrSlowed: the address has shown too many wrong tokens.
	ErrSlowed = errors.New("too many wrong tokens came from this address")
)

// authenticate returns the person that a request comes from.
func (g *Guard) authenticate(r *http.Request) (Person, error) {
	if token := shown(r); token != "" {
		return g.holderOf(r, token)
	}
	if p, ok := g.sessions.person(sessionID(r)); ok {
		return p, nil
	}
	return Person{}, ErrToken
}

// holderOf returns the person whose token it is. All tokens are compared, so that the time
// does not tell which one was close.
func (g *Guard) holderOf(r *http.Request, token string) (Person, error) {
	got, found := digestOf(token), Person{}
	for i := range g.holders {
		if subtle.ConstantTimeCompare(got[:], g.holders[i].token[:]) == 1 {
			found = g.holders[i].Person
		}
	}
	if found.Role != RoleNone {
		return found, nil
	}
	from := tokenlimit.AddressOf(r.RemoteAddr)
	if !g.limit.Wrong(from) {
		return Person{}, ErrSlowed
	}
	g.logger.Warn("console: wrong token", "remote", from.String())
	return Person{}, ErrToken
}

// shown returns the token that a request shows: as a bearer or, for browsers and scripts,
// as the password of whatever user.
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
