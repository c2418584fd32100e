package access_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/console/internal/access"
)

const secret = "a-token-of-anna-only"

// A site has pages that say which person they see, and a login.
type site struct {
	t     *testing.T
	guard *access.Guard
	pages http.Handler
	now   time.Time
	tls   bool
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	var err error
	s.guard, err = access.NewGuard(access.Options{
		Tokens: []access.Token{{Name: "anna", Role: access.RoleAct, Secret: secret}}, Prefix: "/console",
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return s.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.pages = s.guard.Pages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/console/logout" {
			s.guard.Logout(w, r)
			return
		}
		p := access.From(r.Context())
		_, _ = io.WriteString(w, "page for "+p.Name)
	}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if _, err := s.guard.Login(w, r, r.FormValue("token")); err == nil {
				return
			}
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "login")
	}))
	return s
}

// ask sends a request and returns the answer and the cookie that it sets.
func (s *site) ask(method, path, body, cookie string, header ...string) (*httptest.ResponseRecorder, *http.Cookie) {
	s.t.Helper()
	url := "http://console.example" + path
	if s.tls {
		url = "https://console.example" + path
	}
	r := httptest.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: "retrysafe_session", Value: cookie})
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.pages.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		return w, c
	}
	return w, nil
}

func (s *site) login() *http.Cookie {
	s.t.Helper()
	w, c := s.ask("POST", "/console/login", "token="+secret, "")
	if w.Code != http.StatusOK || c == nil {
		s.t.Fatalf("the login got %d, %v", w.Code, c)
	}
	return c
}

// A session begins with the token, and its cookie is for this site and these pages alone.
func TestSession(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if w, c := s.ask("GET", "/console/keys", "", ""); w.Code != http.StatusUnauthorized || c != nil || w.Body.String() != "login" {
		t.Errorf("without a session: %d %s, %v", w.Code, w.Body, c)
	}
	if w, c := s.ask("POST", "/console/login", "token=wrong-wrong-wrong-wrong", ""); w.Code != http.StatusUnauthorized || c != nil {
		t.Errorf("a wrong token: %d, %v", w.Code, c)
	}
	c := s.login()
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/console/" || c.Secure || len(c.Value) < 26 || strings.Contains(c.Value, secret) {
		t.Errorf("the cookie is %+v", c)
	}
	if w, _ := s.ask("GET", "/console/keys", "", c.Value); w.Body.String() != "page for anna" || w.Header().Get("X-Frame-Options") != "DENY" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("with a session: %d %s %v", w.Code, w.Body, w.Header())
	}
	again := s.login()
	if again.Value == c.Value {
		t.Error("two sessions have one id")
	}
	if w, gone := s.ask("POST", "/console/logout", "", c.Value); w.Code != http.StatusOK || gone == nil || gone.MaxAge >= 0 {
		t.Errorf("the logout: %d, %+v", w.Code, gone)
	}
	if w, _ := s.ask("GET", "/console/keys", "", c.Value); w.Code != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", w.Code)
	}
	if w, _ := s.ask("GET", "/console/keys", "", again.Value); w.Code != http.StatusOK {
		t.Errorf("the other session: %d", w.Code)
	}
	s.tls = true
	if c := s.login(); !c.Secure {
		t.Errorf("over TLS the cookie is %+v", c)
	}
}

// A session ends half an hour after its last use, and twelve hours after its login.
func TestSessionsExpire(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	status := func(c *http.Cookie) int {
		w, _ := s.ask("GET", "/console/", "", c.Value)
		return w.Code
	}
	idle, used := s.login(), s.login()
	for range 24 { // until 11 h and 36 min after the login
		s.now = s.now.Add(29 * time.Minute)
		if got := status(used); got != http.StatusOK {
			t.Fatalf("a session that is used: %d", got)
		}
	}
	if got := status(idle); got != http.StatusUnauthorized {
		t.Errorf("an idle session: %d", got)
	}
	s.now = s.now.Add(29 * time.Minute)
	if got := status(used); got != http.StatusUnauthorized {
		t.Errorf("after twelve hours: %d", got)
	}
}

// Another site neither logs in nor acts with the session of a browser.
func TestPagesRefuseOtherSites(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.login()
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		if w, _ := s.ask("POST", "/console/act", "", c.Value, header...); w.Code != http.StatusForbidden {
			t.Errorf("%v: got %d", header, w.Code)
		}
		if w, set := s.ask("POST", "/console/login", "token="+secret, "", header...); w.Code != http.StatusForbidden || set != nil {
			t.Errorf("a login from %v: got %d, %v", header, w.Code, set)
		}
	}
	if w, _ := s.ask("POST", "/console/act", "", c.Value, "Sec-Fetch-Site", "same-origin"); w.Code != http.StatusOK {
		t.Errorf("this site: got %d", w.Code)
	}
}

// The password of a browser and a bearer are as good as a session, and a wrong one is not
// helped by a session.
func TestPagesTakeTokens(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.login()
	for want, header := range map[int][]string{
		http.StatusOK:           {"Authorization", "Bearer " + secret},
		http.StatusUnauthorized: {"Authorization", "Bearer wrong"},
	} {
		if w, _ := s.ask("GET", "/console/", "", c.Value, header...); w.Code != want {
			t.Errorf("%v: got %d, want %d", header, w.Code, want)
		}
	}
	slowed := 0
	for range 1000 {
		w, _ := s.ask("POST", "/console/login", "token=wrong", "")
		if w.Code == http.StatusUnauthorized {
			slowed++
		}
	}
	if w, _ := s.ask("GET", "/console/", "", "", "Authorization", "Bearer wrong"); w.Code != http.StatusTooManyRequests {
		t.Errorf("after %d wrong tokens: got %d", slowed, w.Code)
	}
	s.login()
}
