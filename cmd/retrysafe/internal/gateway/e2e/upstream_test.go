package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// A service is what the gateway guards: each call of /payments is a payment, told
// apart by a reference in its body. Under /keyed it honours X-Payment-Key, as a
// provider does.
type service struct {
	*httptest.Server
	port *porthold.Port

	mu       sync.Mutex
	calls    map[string]int    // by body
	payments map[string]string // by downstream key: the answer
	keys     map[string]map[string]bool
	made     int

	// before, if set, is run when a payment is made and not answered yet.
	before func(body string)
	// parts is whether each answer is the last on its connection.
	parts atomic.Bool
}

func newService(t testing.TB) *service {
	t.Helper()
	s := &service{port: porthold.New(t), calls: map[string]int{}, payments: map[string]string{}, keys: map[string]map[string]bool{}}
	s.start(t)
	return s
}

// start lets the service listen, also again after Close.
func (s *service) start(t testing.TB) {
	t.Helper()
	l, err := s.port.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	s.Start()
	t.Cleanup(s.Close)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return // the gateway died in the middle of it: nothing happened
	}
	body := string(data)
	key := r.Header.Get("X-Payment-Key")
	s.mu.Lock()
	s.calls[body]++
	answer, known := s.payments[key]
	if key == "" || !known {
		s.made++
		answer = fmt.Sprintf(`{"payment": %d, "call": %d}`, s.made, s.calls[body])
	}
	if key != "" {
		s.payments[key] = answer
		if s.keys[body] == nil {
			s.keys[body] = map[string]bool{}
		}
		s.keys[body][key] = true
	}
	s.mu.Unlock()
	if s.before != nil {
		s.before(body)
	}
	w.Header().Set("Content-Type", "application/json")
	if s.parts.Load() {
		w.Header().Set("Connection", "close")
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

// called returns how often a body came, and under how many downstream keys.
func (s *service) called(body string) (calls, keys int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[body], len(s.keys[body])
}

func (s *service) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, calls := range s.calls {
		n += calls
	}
	return n
}

// conf is the gateway's configuration before a service, over a store.
func conf(s *service, store string, more ...string) string {
	return fmt.Sprintf(`upstream: %s
store: %q
tenant: { from: bearer }
routes:
  - { match: "POST /payments" }
  - { match: "POST /keyed", effects: keyed, derive_key: X-Payment-Key, lapse: rerun }
`, s.URL, store) + strings.Join(more, "\n")
}

// hangUp closes the connection of an exchange without an answer.
func hangUp() { panic(http.ErrAbortHandler) }
