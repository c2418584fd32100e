package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A bank is a service with a ledger. It books each request, also one that it has booked
// before, and in an outage books some of them and answers 500 to all.
type bank struct {
	*httptest.Server
	down atomic.Bool

	mu     sync.Mutex
	booked map[string]int // by the key that the gateway derived
	asked  int
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{booked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", b.pay)
	mux.HandleFunc("GET /ledger/{key}", b.look)
	b.Server = httptest.NewServer(mux)
	t.Cleanup(b.Close)
	return b
}

func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key, down := r.Header.Get("X-Payment-Key"), b.down.Load()
	if !down || strings.Contains(string(body), `"even"`) {
		b.mu.Lock()
		b.booked[key]++
		b.mu.Unlock()
	}
	if down {
		http.Error(w, "we are sorry", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"payment":"pay_%s"}`, key)
}

func (b *bank) look(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") != "Bearer the-ledgers-own-token":
		w.WriteHeader(http.StatusUnauthorized)
	case b.down.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case b.booked[key] > 0:
		fmt.Fprintf(w, `{"data":[{"id":"pay_%s","status":"booked"}]}`, key)
	default:
		_, _ = io.WriteString(w, `{"data":[]}`)
	}
}

// An upstream answers 500 under 2,000 keys; half of the payments were made. Then the
// ledger of the bank is there to be asked: each key ends answered or released without a
// person, clients that retry get their 201, and each payment was made once.
func TestOutageIsSettledByALedger(t *testing.T) {
	t.Parallel()
	const keys, clients = 2000, 32
	b := newBank(t)
	b.down.Store(true)
	g := newGateway(t, fmt.Sprintf(`upstream: %[1]s
store: "sqlite:%[2]s"
tenant: { from: bearer }
routes:
  - { match: "POST /payments", derive_key: X-Payment-Key, timeout: 5s, reconcile: 6500ms }
reconcile:
  every: 250ms
  concurrency: 16
  pause: 2s
  max_pause: 5s
  tries: 100
  break_pause: 200ms
  max_break_pause: 1s
  resolvers:
    - name: ledger
      routes: ["POST /payments"]
      url: "%[1]s/ledger/{downstream_key}"
      token: the-ledgers-own-token
      deadline: 6s
      provider_ref: /data/0/id
      rules:
        - { status: 200, when: { /data/0/status: booked }, then: happened, answer: { status: 201, body: '{"payment":"{/data/0/id}"}' } }
        - { status: 200, absent: [/data/0], then: not_happened }
`, b.URL, filepath.Join(t.TempDir(), "keys.db")))

	work := func(list []int, do func(i int)) {
		next := make(chan int)
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for i := range next {
					do(i)
				}
			})
		}
		for _, i := range list {
			next <- i
		}
		close(next)
		wg.Wait()
	}
	key := func(i int) string { return fmt.Sprintf("payment-%06d-of-the-outage", i) }
	body := func(i int) string { return fmt.Sprintf(`{"n": %d, "kind": %q}`, i, []string{"even", "odd"}[i%2]) }
	all := make([]int, keys)
	for i := range all {
		all[i] = i
	}
	work(all, func(i int) {
		if got, err := g.post(t.Context(), "/payments", key(i), body(i)); err != nil || got.status/100 != 5 {
			t.Errorf("in the outage a client got %d %s, %v", got.status, got.body, err)
		}
	})
	got, err := g.post(t.Context(), "/payments", key(0), body(0))
	must(t, err)
	if got.code() != "outcome-unknown" || !strings.Contains(got.body, "is being looked into") {
		t.Errorf("a retry gets %d %s", got.status, got.body)
	}

	b.down.Store(false)
	answers := make([]answer, keys)
	left := all
	for end := time.Now().Add(5 * time.Minute); len(left) > 0; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("%d keys are not answered after five minutes", len(left))
		}
		var mu sync.Mutex
		var still []int
		work(left, func(i int) {
			got, err := g.post(t.Context(), "/payments", key(i), body(i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || got.status != http.StatusCreated {
				still = append(still, i)
				return
			}
			answers[i] = got
		})
		left = still
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.booked) != keys {
		t.Errorf("%d payments were made under %d keys", len(b.booked), keys)
	}
	for key, n := range b.booked {
		if n != 1 {
			t.Errorf("%s was made %d times", key, n)
		}
	}
	for i, got := range answers {
		var a struct{ Payment string }
		if err := json.Unmarshal([]byte(got.body), &a); err != nil || b.booked[strings.TrimPrefix(a.Payment, "pay_")] != 1 {
			t.Errorf("client %d got %s", i, got.body)
		}
	}
	t.Logf("the ledger was asked %d times", b.asked)
}

// Two gateways over one PostgreSQL ask one resolver: about each key one of them at a time.
// When the one that asks is killed, the other asks again, and nothing is lost.
func TestTwoGatewaysAskOneAtATime(t *testing.T) {
	t.Parallel()
	const keys = 60
	tokens := [2]string{"token-of-the-first", "token-of-the-second"}
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(down.Close)

	var mu sync.Mutex
	open, tries, by := map[string]int{}, map[string]int{}, map[string]int{}
	caught := make(chan string, 1) // a key that the first gateway asks about, held
	var hold atomic.Bool
	resolver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Key string }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		mu.Lock()
		open[q.Key]++
		tries[q.Key]++
		by[token]++
		if open[q.Key] > 1 {
			t.Errorf("%s is asked about twice at a time", q.Key)
		}
		try := tries[q.Key]
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			open[q.Key]--
		}()
		if token == tokens[0] && hold.CompareAndSwap(true, false) {
			caught <- q.Key
			<-r.Context().Done() // until the gateway is killed
			return
		}
		time.Sleep(10 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		if try < 3 {
			_, _ = io.WriteString(w, `{"verdict": "still_unknown", "evidence": "not booked yet"}`)
			return
		}
		fmt.Fprintf(w, `{"verdict": "happened", "evidence": "booked", "answer": {"status": 201, "body": %q}}`, `{"paid":"`+q.Key+`"}`)
	}))
	t.Cleanup(resolver.Close)

	url := testservers.Shared(t)
	var gateways [2]*gateway
	for i, token := range tokens {
		gateways[i] = newGateway(t, fmt.Sprintf(`upstream: %s
store: %q
tenant: { from: bearer }
routes: [{ match: "POST /payments", reconcile: 10ms }]
reconcile:
  { every: 50ms, concurrency: 4, pause: 100ms, max_pause: 200ms, timeout: 10s, tries: 100, resolvers: [{ endpoint: "%s/resolve", token: %s }] }
`, down.URL, url, resolver.URL, token))
	}
	hold.Store(true)
	key := func(i int) string { return fmt.Sprintf("payment-%03d-of-two-gateways", i) }
	for i := range keys {
		got, err := gateways[i%2].post(t.Context(), "/payments", key(i), "{}")
		must(t, err)
		if got.status != http.StatusInternalServerError {
			t.Fatalf("got %d %s", got.status, got.body)
		}
	}
	var held string
	select {
	case held = <-caught:
	case <-time.After(time.Minute):
		t.Fatalf("the first gateway asks nothing:\n%s", gateways[0].log)
	}
	gateways[0].kill()
	eventually(t, "every key is answered", func() bool {
		for i := range keys {
			got, err := gateways[1].post(t.Context(), "/payments", key(i), "{}")
			if err != nil || got.status != http.StatusCreated {
				return false
			}
			if want := `{"paid":"` + key(i) + `"}`; got.body != want {
				t.Fatalf("%s got %s", key(i), got.body)
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	if tries[held] != 4 && tries[held] != 3 {
		t.Errorf("%s, which the killed gateway asked about, was asked about %d times", held, tries[held])
	}
	if by[tokens[0]] == 0 || by[tokens[1]] == 0 {
		t.Errorf("they asked %v times", by)
	}
}
