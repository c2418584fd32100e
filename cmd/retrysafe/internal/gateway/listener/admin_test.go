package listener_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// withPages adds pages that say which configuration they are of.
func withPages(s *site, o *listener.Options) {
	withAdmin(s, o)
	o.Admin = func(c *config.Config) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s for %s, %d bytes, %v", r.Method, r.URL.Path, c.Upstream, len(body), err)
		})
	}
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })
	s.config.Upstream = "one"
}

func TestAdminNeedsTheToken(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withPages)
	for _, c := range []struct {
		name, path, authorization string
		status                    int
		body                      string
	}{
		{"none", "/", "", 401, ""},
		{"wrong", "/", "Bearer wrong", 401, ""},
		{"a part of it", "/", "Bearer " + token[:len(token)-1], 401, ""},
		{"more than it", "/", "Bearer " + token + "x", 401, ""},
		{"empty", "/", "Bearer ", 401, ""},
		{"another scheme", "/", "Token " + token, 401, ""},
		{"as the user", "/", basic(token, ""), 401, ""},
		{"wrong password", "/", basic("anna", "wrong"), 401, ""},
		{"metrics, none", "/metrics", "", 401, ""},
		{"unknown, none", "/unknown", "", 401, ""},
		{"no debugging", "/debug/pprof/", "", 401, ""},
		{"bearer", "/keys", "Bearer " + token, 200, "GET /keys for one, 0 bytes, <nil>"},
		{"bearer in another case", "/keys", "bearer " + token, 200, "GET /keys for one, 0 bytes, <nil>"},
		{"password", "/keys", basic("anna", token), 200, "GET /keys for one, 0 bytes, <nil>"},
		{"metrics", "/metrics", "Bearer " + token, 200, "metrics"},
		{"metrics by password", "/metrics", basic("prometheus", token), 200, "metrics"},
	} {
		header := []string{"Authorization", c.authorization}
		if c.authorization == "" {
			header = nil
		}
		status, body := get(t, s.client(), s.addresses().Admin+c.path, header...)
		if status != c.status || c.body != "" && body != c.body {
			t.Errorf("%s: got %d %q, want %d %q", c.name, status, body, c.status, c.body)
		}
	}
	if strings.Contains(s.log.String(), token) {
		t.Error("the token is in the log")
	}
	if n := s.app(0).served.Load(); n != 0 {
		t.Errorf("the app was given %d requests of operators", n)
	}

	// The pages and the token are those of the configuration.
	s.change(func(c *config.Config) { c.Admin.Token, c.Upstream = "another-token-for-tests", "two" })
	if status, _ := get(t, s.client(), s.addresses().Admin+"/", "Authorization", "Bearer "+token); status != 401 {
		t.Errorf("the old token got %d", status)
	}
	if _, body := get(t, s.client(), s.addresses().Admin+"/", "Authorization", "Bearer another-token-for-tests"); body != "GET / for two, 0 bytes, <nil>" {
		t.Errorf("got %q", body)
	}
}

// The token for metrics opens /metrics and nothing else, and changes with the
// configuration.
func TestMetricsTokenOpensMetricsAlone(t *testing.T) {
	t.Parallel()
	const scraper = "a-token-for-the-scraper"
	s := start(t, nil, withPages, func(s *site, _ *listener.Options) { s.config.Admin.MetricsToken = scraper })
	ask := func(path, token string, want int) {
		t.Helper()
		if status, body := get(t, s.client(), s.addresses().Admin+path, "Authorization", "Bearer "+token); status != want {
			t.Errorf("%s with %s: got %d %q, want %d", path, token, status, body, want)
		}
	}
	ask("/metrics", scraper, 200)
	ask("/keys", scraper, 403)
	ask("/metrics", token, 200)
	ask("/keys", token, 200)
	ask("/metrics", scraper+"x", 401)
	if status, _, err := try(t.Context(), s.client(), http.MethodPost, s.addresses().Admin+"/metrics", "Authorization", "Bearer "+scraper); err != nil || status != 403 {
		t.Errorf("a POST got %d, %v", status, err)
	}
	s.change(func(c *config.Config) { c.Admin.MetricsToken = "" })
	ask("/metrics", scraper, 401)
	ask("/metrics", "", 401)
}

func TestAdminWithoutPages(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withAdmin)
	for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/debug/vars"} {
		if status, _ := get(t, s.client(), s.addresses().Admin+path, "Authorization", "Bearer "+token); status != 404 {
			t.Errorf("%s: got %d, want 404", path, status)
		}
	}
}

// There is nothing for developers on any listener.
func TestW84_NoDebugging(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, withPages)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars"} {
		if status, _ := get(t, s.client(), s.addresses().Main+path); status != http.StatusTeapot {
			t.Errorf("%s on the main listener: got %d, want it to be the app's", path, status)
		}
		if status, body := get(t, s.client(), s.addresses().Admin+path, "Authorization", "Bearer "+token); !strings.HasPrefix(body, "GET "+path) {
			t.Errorf("%s on the admin listener: got %d %q, want it to be the pages'", path, status, body)
		}
	}
}

// An address that tries tokens is refused after a while; the right token is not, from
// there or from elsewhere.
func TestWrongTokensAreLimited(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withPages)
	from := func(ip string) *http.Client {
		c := s.client()
		c.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext
		return c
	}
	thief, operator := from("127.0.0.2"), from("127.0.0.3")
	url := s.addresses().Admin + "/"
	tries := 0
	for status := 0; status != http.StatusTooManyRequests; tries++ {
		if tries > 10_000 {
			t.Fatal("wrong tokens are not limited")
		}
		status, _ = get(t, thief, url, "Authorization", fmt.Sprintf("Bearer %d", tries))
		if status != http.StatusTooManyRequests && status != http.StatusUnauthorized {
			t.Fatalf("got %d", status)
		}
	}
	if tries <= 10 {
		t.Errorf("after only %d wrong tokens the address is refused", tries)
	}
	if status, _ := get(t, operator, url, "Authorization", "Bearer "+token); status != 200 {
		t.Errorf("another address got %d", status)
	}
	if status, _ := get(t, thief, url, "Authorization", "Bearer "+token); status != 200 {
		t.Errorf("the right token after too many wrong ones got %d: strangers lock operators out", status)
	}
	if status, _ := get(t, thief, s.addresses().Admin+"/livez"); status != 200 {
		t.Errorf("/livez says %d", status)
	}
}

func TestAdminHeaders(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withPages)
	for _, path := range []string{"/", "/livez", "/readyz", "/metrics"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.addresses().Admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("anna", token)
		res, err := s.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if csp := res.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy is %q", path, csp)
		}
	}
}

// A browser that knows the password does not act for another site.
func TestAdminRefusesOtherSites(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withPages)
	for _, c := range []struct {
		method, header, value string
		status                int
	}{
		{http.MethodPost, "Sec-Fetch-Site", "cross-site", 403},
		{http.MethodPost, "Sec-Fetch-Site", "same-site", 403},
		{http.MethodPost, "Origin", "https://evil.example", 403},
		{http.MethodPost, "Origin", s.addresses().Admin, 200},
		{http.MethodPost, "Sec-Fetch-Site", "same-origin", 200},
		{http.MethodPost, "X-None", "", 200}, // no browser
		{http.MethodGet, "Sec-Fetch-Site", "cross-site", 200},
	} {
		status, _, err := try(t.Context(), s.client(), c.method, s.addresses().Admin+"/act", "Authorization", basic("anna", token), c.header, c.value)
		if err != nil || status != c.status {
			t.Errorf("%s with %s: %s: got %d, %v, want %d", c.method, c.header, c.value, status, err, c.status)
		}
	}
}

func TestAdminBodiesAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withPages)
	// The answer comes while the body is still on its way, which net/http's client may take for a failure.
	c := dial(t, strings.TrimPrefix(s.addresses().Admin, "http://"))
	go func() {
		_, _ = io.WriteString(c, "POST /big HTTP/1.1\r\nHost: x\r\nAuthorization: "+basic("anna", token)+"\r\nContent-Length: 2097152\r\n\r\n"+strings.Repeat("x", 2<<20))
	}()
	if _, body := read(t, bufio.NewReader(c)); !strings.Contains(body, "too large") {
		t.Errorf("got %q", body)
	}
}

// A page keeps its App at work until it is done.
func TestPagesKeepTheirApp(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	s := start(t, nil, withAdmin, func(_ *site, o *listener.Options) {
		o.Admin = func(*config.Config) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(began)
					<-release
				}
			})
		}
	})
	done := make(chan error, 1)
	url := s.addresses().Admin + "/slow"
	go func() {
		_, _, err := try(t.Context(), s.client(), http.MethodGet, url, "Authorization", "Bearer "+token)
		done <- err
	}()
	<-began
	s.reloadNow()
	if status, _ := get(t, s.client(), s.addresses().Admin+"/", "Authorization", "Bearer "+token); status != 200 {
		t.Errorf("got %d from the new pages", status)
	}
	if n := s.app(0).drains(); n != 0 {
		t.Error("the app was drained while a page of it was made")
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	eventually(t, "the old app is drained", func() bool { return s.app(0).drains() == 1 })
}

func TestAdminOverTLS(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withPages, func(s *site, _ *listener.Options) { s.config.Admin.TLS = certify(t, t.TempDir(), 1) })
	at := s.addresses()
	if !strings.HasPrefix(at.Main, "http://") || !strings.HasPrefix(at.Admin, "https://") {
		t.Fatalf("the addresses are %v", at)
	}
	if status, _ := get(t, s.client(), at.Admin+"/metrics", "Authorization", "Bearer "+token); status != 200 {
		t.Errorf("got %d", status)
	}
}
