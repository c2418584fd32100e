package listener_test

import (
	"errors"
	"net/http"
	"testing"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }, withAdmin)
	main, admin := s.addresses().Main, s.addresses().Admin
	bearer := []string{"Authorization", "Bearer " + token}
	type check struct {
		url    string
		header []string
		status int
		body   string
	}
	holds := func(t *testing.T, checks ...check) {
		t.Helper()
		for _, c := range checks {
			if status, body := get(t, s.client(), c.url, c.header...); status != c.status || body != c.body {
				t.Errorf("%s: got %d %q, want %d %q", c.url, status, body, c.status, c.body)
			}
		}
	}
	holds(t,
		check{main + "/.retrysafe/livez", nil, 200, "ok\n"},
		check{main + "/.retrysafe/readyz", nil, 200, "ok\n"},
		check{admin + "/livez", nil, 200, "ok\n"},
		check{admin + "/readyz", nil, 200, "ok\n"},
		// What is the upstream's stays the upstream's.
		check{main + "/livez", nil, http.StatusTeapot, ""},
		check{main + "/readyz", nil, http.StatusTeapot, ""},
		check{main + "/.retrysafe/other", nil, http.StatusTeapot, ""},
		check{main + "/.well-known/x", nil, http.StatusTeapot, ""},
	)
	if status, _, err := try(t.Context(), s.client(), http.MethodPost, main+"/.retrysafe/readyz"); err != nil || status != http.StatusTeapot {
		t.Errorf("a POST got %d, %v", status, err)
	}

	err := errors.New("the store at db.internal is down\x1b[2J")
	s.app(0).ready.Store(&err)
	holds(t,
		check{main + "/.retrysafe/livez", nil, 200, "ok\n"},
		check{main + "/.retrysafe/readyz", nil, 503, "not ready\n"},
		check{admin + "/livez", nil, 200, "ok\n"},
		// The reason is shown only with the token.
		check{admin + "/readyz", nil, 503, "not ready\n"},
		check{admin + "/readyz", []string{"Authorization", "Bearer wrong"}, 503, "not ready\n"},
		check{admin + "/readyz", bearer, 503, "the store at db.internal is down\\x1b[2J\n"},
	)
	s.app(0).ready.Store(nil)
	holds(t, check{admin + "/readyz", nil, 200, "ok\n"})
}
