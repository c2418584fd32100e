package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/webhook"
)

// A fate is what became of a payment at the provider, and of the answer to it.
type fate int

const (
	answered fate = iota // it was made, and the answer arrived
	lost                 // it was made, and the service answered 500
	declined             // it was declined, and the service answered 500
	canceled             // it was canceled for good, and the connection broke
	fates
)

// event is the type of the provider's last event about a payment, and the opposite, as
// a forger would have it.
func (f fate) event() (kind, forged string) {
	return [...]string{"payment.succeeded", "payment.succeeded", "payment.declined", "payment.canceled"}[f],
		[...]string{"payment.declined", "payment.canceled", "payment.succeeded", "payment.succeeded"}[f]
}

// provider is a service with its payment provider, which reports what became of each
// payment by webhooks, and delivers again what got no 2xx.
type provider struct {
	*httptest.Server
	t       *testing.T
	hook    string       // where events go
	secret  atomic.Value // that events are signed with now
	every   int          // one of so many payments is reported before its answer
	mu      sync.Mutex
	keys    map[string]string // downstream keys, by order
	calls   map[string]int
	early   atomic.Int64 // deliveries before the answer
	refused atomic.Int64 // deliveries that were not acknowledged and came again
}

// A delivery is one delivery of an event.
type delivery struct {
	order int
	id    string
	kind  string
	bad   string // what is wrong with it: "", "forged" or "late"
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	order := string(body)
	p.mu.Lock()
	p.keys[order] = r.Header.Get("X-Payment-Key")
	p.calls[order]++
	calls := p.calls[order]
	p.mu.Unlock()
	var n int
	if _, err := fmt.Sscanf(order, `{"order": %d}`, &n); err != nil {
		p.t.Errorf("the service got %s", order)
	}
	if calls > 1 {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "again %d", n)
		return
	}
	if n%p.every == 0 { // its events come before its answer
		for _, d := range deliveries(n) {
			status := p.send(d)
			p.early.Add(1)
			if want := map[string]int{"": http.StatusServiceUnavailable, "forged": http.StatusUnauthorized, "late": http.StatusUnauthorized}[d.bad]; status != want {
				p.t.Errorf("%+v before the answer got %d", d, status)
			}
		}
	}
	switch fate(n % int(fates)) {
	case answered:
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "made %d", n)
	case canceled:
		hangUp()
	default:
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// deliveries are those about one payment: eight, of three events, one of them not the
// provider's.
func deliveries(n int) (all []delivery) {
	kind, forged := fate(n % int(fates)).event()
	for range 2 {
		all = append(all, delivery{n, fmt.Sprintf("evt_%d_first", n), "payment.processing", ""})
	}
	for range 5 {
		all = append(all, delivery{n, fmt.Sprintf("evt_%d_last", n), kind, ""})
	}
	return append(all, delivery{n, fmt.Sprintf("evt_%d_bad", n), forged, []string{"forged", "late"}[n/int(fates)%2]})
}

// send delivers an event once, signed for this delivery, and returns the status.
func (p *provider) send(d delivery) int {
	p.mu.Lock()
	key := p.keys[fmt.Sprintf(`{"order": %d}`, d.order)]
	p.mu.Unlock()
	body := fmt.Sprintf(`{"id":%q,"type":%q,"data":{"id":"pi_%d","key":%q}}`, d.id, d.kind, d.order, key)
	secret, at := p.secret.Load().(webhook.Secret), time.Now()
	switch d.bad {
	case "forged":
		secret = "a-secret-that-was-guessed"
	case "late":
		at = at.Add(-time.Hour)
	}
	return p.post(body, webhook.SignStripe(secret, at, []byte(body)))
}

// deliver delivers an event until it is acknowledged. A bad one is delivered once, and
// has to be refused.
func (p *provider) deliver(d delivery, gaveUp *atomic.Bool) {
	for end := time.Now().Add(3 * time.Minute); !gaveUp.Load(); time.Sleep(50 * time.Millisecond) {
		status := p.send(d)
		switch {
		case d.bad != "" && status != http.StatusUnauthorized:
			p.t.Errorf("%+v got %d", d, status)
			return
		case d.bad != "", status/100 == 2:
			return
		case time.Now().After(end):
			p.t.Errorf("%+v gets %d again and again", d, status)
			return
		}
		p.refused.Add(1)
	}
}

func (p *provider) post(body, signature string) int {
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.hook, strings.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return 0
	}
	r.Header.Set("Stripe-Signature", signature)
	got, err := send(r)
	if err != nil && !errors.Is(err, io.EOF) {
		p.t.Errorf("deliver: %v", err)
	}
	return got.status
}

// ping reports whether events signed with a secret are taken in.
func (p *provider) ping(s webhook.Secret) bool {
	body := fmt.Sprintf(`{"id":"ping-%d","type":"ping"}`, rand.Int64())
	return p.post(body, webhook.SignStripe(s, time.Now(), []byte(body))) == http.StatusOK
}

// Ten thousand deliveries, in any order, several times, a tenth of them before the
// answer, some forged or late, while secrets are replaced: each payment ends as the
// provider's ledger says, and what was forged or late has changed nothing.
func TestW57_DeliveriesEndAsTheLedgerSays(t *testing.T) {
	t.Parallel()
	const payments, workers = 1250, 24
	p := &provider{t: t, every: 10, keys: map[string]string{}, calls: map[string]int{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	folder := t.TempDir()
	current, previous := filepath.Join(folder, "current"), filepath.Join(folder, "previous")
	put := func(file string, s webhook.Secret) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(string(s)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	secrets := []webhook.Secret{"whsec_before_the_first_one", "whsec_the_first_secret_1", "whsec_the_second_secret_2"}
	put(previous, secrets[0])
	put(current, secrets[1])
	p.secret.Store(secrets[1])
	g := newGateway(t, fmt.Sprintf(`upstream: %s
store: "sqlite:%s"
tenant: bearer
routes:
  - { match: "POST /payments", derive_key: X-Payment-Key }
webhooks:
  - name: pay
    path: /hooks/pay
    scheme: stripe
    secret_files: [%q, %q]
    find: { downstream_key: /data/key, provider_ref: /data/id }
    missing: acknowledge
    rules:
      - { when: { /type: payment.succeeded }, outcome: happened, answer: { status: 201, body: '{"payment":"{/data/id}"}' } }
      - { when: { /type: payment.declined }, outcome: declined, answer: { status: 402, body: '{"declined":"{/data/id}"}' } }
      - { when: { /type: payment.canceled }, outcome: not_happened, final: true }
      - { when: { /type: payment.processing }, outcome: pending }
      - { when: { /type: ping }, outcome: ignore }
`, p.URL, filepath.Join(folder, "keys.db"), current, previous))
	p.hook = g.url + "/hooks/pay"

	pay := func(n int) answer {
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got, err := g.post(t.Context(), "/payments", fmt.Sprintf("the-key-of-payment-%d", n), fmt.Sprintf(`{"order": %d}`, n))
			if err != nil {
				t.Errorf("payment %d: %v", n, err)
			}
			if got.status != http.StatusServiceUnavailable || time.Now().After(end) { // the store is slow under so many
				return got
			}
		}
	}
	share := func(n int, do func(i int)) {
		var all sync.WaitGroup
		next := new(atomic.Int64)
		for range workers {
			all.Go(func() {
				for i := next.Add(1) - 1; int(i) < n; i = next.Add(1) - 1 {
					do(int(i))
				}
			})
		}
		all.Wait()
	}
	began := time.Now()
	share(payments, func(i int) { pay(i) })
	t.Logf("%d payments after %v, %d deliveries before the answers", payments, time.Since(began), p.early.Load())

	var todo []delivery
	for i := range payments {
		for _, d := range deliveries(i) {
			if i%p.every != 0 || d.bad == "" { // refused events come again, and forged ones have been refused for good
				todo = append(todo, d)
			}
		}
	}
	rand.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	done, gaveUp := new(atomic.Int64), new(atomic.Bool)
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		share(len(todo), func(i int) {
			p.deliver(todo[i], gaveUp)
			done.Add(1)
		})
	}()
	defer func() {
		gaveUp.Store(true)
		<-delivered
	}()
	// The secrets are replaced while events arrive.
	after := func(part int) {
		for int(done.Load()) < part*len(todo)/4 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	after(1)
	put(previous, secrets[1])
	put(current, secrets[2])
	eventually(t, "the next secret is accepted", func() bool { return p.ping(secrets[2]) })
	p.secret.Store(secrets[2])
	after(2)
	put(previous, secrets[2])
	eventually(t, "the previous secret is not accepted any more", func() bool { return !p.ping(secrets[1]) })
	<-delivered
	t.Logf("%d deliveries after %v, and %d again", int(p.early.Load())+len(todo), time.Since(began), p.refused.Load())

	share(payments, func(i int) {
		want := [...]answer{
			answered: {status: 201, body: fmt.Sprintf("made %d", i)},
			lost:     {status: 201, body: fmt.Sprintf(`{"payment":"pi_%d"}`, i)},
			declined: {status: 402, body: fmt.Sprintf(`{"declined":"pi_%d"}`, i)},
			canceled: {status: 201, body: fmt.Sprintf("again %d", i)},
		}[i%int(fates)]
		if got := pay(i); got.status != want.status || got.body != want.body {
			t.Errorf("payment %d is answered by %d %s; want %d %s", i, got.status, got.body, want.status, want.body)
		}
		calls := 1
		if fate(i%int(fates)) == canceled {
			calls = 2
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := p.calls[fmt.Sprintf(`{"order": %d}`, i)]; n != calls {
			t.Errorf("payment %d was sent to the service %d times, want %d", i, n, calls)
		}
	})
	t.Logf("checked after %v", time.Since(began))
	for _, alarm := range []string{"contradict", "panic", "level=ERROR"} {
		if i := strings.Index(g.log.String(), alarm); i >= 0 {
			t.Errorf("the log has %q: %.400s", alarm, g.log.String()[max(i-100, 0):])
		}
	}
}

// Two gateways over one PostgreSQL: an event reaches the one that has not seen the key. It
// is refused while the other one is at work, also where missing keys are acknowledged, and
// settles the key when the other one has died.
func TestW57_EventsReachKeysOfAKilledNode(t *testing.T) {
	t.Parallel()
	const secret = webhook.Secret("whsec_of_the_provider_1")
	reached, hold := make(chan string, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- r.Header.Get("X-Payment-Key")
		<-hold
		hangUp()
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(hold) })
	text := fmt.Sprintf(`upstream: %s
store: %q
tenant: bearer
routes:
  - { match: "POST /payments", derive_key: X-Payment-Key, lease: 10s }
webhooks:
  - name: pay
    scheme: stripe
    secrets: [%s]
    find: { downstream_key: /key }
    missing: acknowledge
    rules: [{ when: { /type: paid }, outcome: happened, answer: { status: 201, body: '{"paid":true}' } }]
`, s.URL, testservers.NewPostgres(t, nil).URL("postgres"), string(secret))
	one, two := newGateway(t, text), newGateway(t, text)
	go func() { _, _ = one.post(t.Context(), "/payments", "the-key-of-the-payment", "{}") }() // it gets no answer
	key := <-reached
	deliver := func(id, key string) answer {
		t.Helper()
		body := fmt.Sprintf(`{"id":%q,"type":"paid","key":%q}`, id, key)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, two.url+"/.retrysafe/webhooks/pay", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Stripe-Signature", webhook.SignStripe(secret, time.Now(), []byte(body)))
		got, err := send(r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := deliver("evt_1", key); got.status != http.StatusServiceUnavailable || got.code() != "key-in-flight" {
		t.Errorf("while the owner is at work: %d %s", got.status, got.body)
	}
	one.kill()
	eventually(t, "the event settles the key", func() bool {
		got := deliver("evt_1", key)
		if got.status != http.StatusOK && got.status != http.StatusServiceUnavailable {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return got.status == http.StatusOK && strings.Contains(got.body, "settled")
	})
	got, err := two.post(t.Context(), "/payments", "the-key-of-the-payment", "{}")
	if err != nil || got.status != http.StatusCreated || got.body != `{"paid":true}` || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a retry gets %+v, %v", got, err)
	}
	if got := deliver("evt_2", "a-key-of-another-system"); got.status != http.StatusOK || !strings.Contains(got.body, "acknowledged") {
		t.Errorf("an event about another key: %d %s", got.status, got.body)
	}
}
