package access

import (
	"crypto/rand"
	"net/http"
	"sync"
	"time"
)

const (
	// cookieName is the name of the cookie of a session.
	cookieName = "retrysafe_session"
	// A session ends when it was not used for maxIdle, and maxAge after the login.
	maxIdle = 30 * time.Minute
	maxAge  = 12 * time.Hour
	// maxSessions bounds the memory. Beyond it the session that was unused for longest
	// ends.
	maxSessions = 1000
)

// A session is the login of a person with a browser.
type session struct {
	Person
	began, used time.Time
}

// sessions are those of this process. They are known by digests of their ids, so that a
// dump of the memory holds no id.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[digest]*session
}

func newSessions(now func() time.Time) *sessions {
	if now == nil {
		now = time.Now
	}
	return &sessions{now: now, all: map[digest]*session{}}
}

// Login begins a session for the person whose token it is, and sets its cookie. The error
// is [ErrToken] or [ErrSlowed]. The caller has checked that the request comes from this
// site, which [Guard.Pages] does.
func (g *Guard) Login(w http.ResponseWriter, r *http.Request, token string) (Person, error) {
	p, err := g.holderOf(r, token)
	if err != nil {
		return p, err
	}
	g.sessions.end(sessionID(r))
	g.setCookie(w, r, g.sessions.begin(p), int(maxAge/time.Second))
	return p, nil
}

// Logout ends the session of a request, and deletes its cookie.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) {
	g.sessions.end(sessionID(r))
	g.setCookie(w, r, "", -1)
}

func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, id string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: id, Path: g.prefix + "/", MaxAge: age,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// sessionID returns the id of the session that a request shows, or nothing.
func sessionID(r *http.Request) string {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	return c.Value
}

// begin returns the id of a new session.
func (s *sessions) begin(p Person) string {
	id, now := rand.Text(), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxSessions {
		s.makeRoom(now)
	}
	s.all[digestOf(id)] = &session{p, now, now}
	return id
}

// makeRoom drops the sessions that have ended or, if there are none, the one that was
// unused for longest.
func (s *sessions) makeRoom(now time.Time) {
	var oldest digest
	var at time.Time
	for id, one := range s.all {
		if one.over(now) {
			delete(s.all, id)
		} else if at.IsZero() || one.used.Before(at) {
			oldest, at = id, one.used
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, oldest)
	}
}

// over reports whether the session has ended.
func (s *session) over(now time.Time) bool {
	return now.Sub(s.used) >= maxIdle || now.Sub(s.began) >= maxAge
}

// person returns the person of a session, and counts it as used.
func (s *sessions) person(id string) (Person, bool) {
	if id == "" {
		return Person{}, false
	}
	key, now := digestOf(id), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[key]
	if one == nil {
		return Person{}, false
	}
	if one.over(now) {
		delete(s.all, key)
		return Person{}, false
	}
	one.used = now
	return one.Person, true
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, digestOf(id))
}
