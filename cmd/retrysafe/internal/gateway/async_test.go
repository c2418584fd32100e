package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/storekit"
)

func async(s *config.Settings) { s.Async = true }

// await asks until there is an answer that is no 202.
func (b *bundle) await(t *testing.T, target string, change ...func(*http.Request)) *response {
	t.Helper()
	for {
		got := b.get(t, target, change...)
		if got.status != http.StatusAccepted {
			return got
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the request is never run")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A request is stored and run later against the upstream. Its status URL and a retry
// return its answer, to the same caller only.
func TestAsync(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan *http.Request, 1)
			b := setup(t, over(open(t)), withRoutes(route("POST /exports", async), route("POST /many", async, func(s *config.Settings) { s.Concurrency = 2 }), route("/both/{id}", async)),
				answering(func(w http.ResponseWriter, r *http.Request) {
					arrived <- r
					created(w, r)
				}))
			odd := key + "/%2F..?#"
			for _, target := range []string{"/exports", "/many", "/both/7"} {
				got := b.post(t, target, odd, `{"n":1}`, with("X-Custom", "dropped"), with("Authorization", "dropped"))
				got.refused(t, http.StatusAccepted, "in-flight")
				place := got.header.Get("Location")
				if !strings.HasPrefix(place, "/.retrysafe/requests/") {
					t.Fatalf("the place to look is %q", place)
				}
				b.get(t, place, with("X-Tenant-Id", "rival")).refused(t, http.StatusNotFound, "key-unknown")
				b.get(t, place, without("X-Tenant-Id")).refused(t, http.StatusForbidden, "caller-unidentified")
				if target == "/exports" { // before a worker runs
					b.get(t, place).refused(t, http.StatusAccepted, "in-flight")
					b.upstream.called(t, 0)
					b.run(t)
				}
				b.await(t, place).is(t, 201, `{"got":{"n":1}}`, true)
				r := <-arrived
				if r.RequestURI != target || r.Header.Get("X-Tenant-Id") != "acme" || r.Header.Get("Content-Type") != "application/json" ||
					r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Custom") != "" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Forwarded-For") != "" {
					t.Errorf("%s with %v arrived", r.RequestURI, r.Header)
				}
				accepted, ran := b.last(t), b.last(t)
				if accepted.Later { // the worker was quicker than the word of it
					accepted, ran = ran, accepted
				}
				if x := accepted; x.Handling != gateway.HandlingAccepted || x.Status != 202 || x.KeyHash != retrysafe.HashKey(odd) {
					t.Errorf("told of %+v", x)
				}
				if x := ran; !x.Later || x.Handling != gateway.HandlingFresh || x.Status != 201 || x.Attempt != 1 || x.Path != target || x.KeyHash != retrysafe.HashKey(odd) {
					t.Errorf("told of %+v", x)
				}
				b.post(t, target, odd, `{"n":1}`).is(t, 201, `{"got":{"n":1}}`, true)
				b.last(t)
				b.post(t, target, odd, `{"n":2}`).refused(t, 422, "key-reused")
				b.last(t)
				b.upstream.called(t, 1)
				b.upstream.calls.Store(0)
				odd += "x"
			}
		})
	}
}

// An upstream that is down is tried again; one that may have executed a request that is
// not protected is not.
func TestAsyncFailures(t *testing.T) {
	t.Parallel()

	m := newMortal(t, func(e execution) string {
		if e.path == "/dies" || e.times == 2 { // the second is the first of the other route
			return fin
		}
		return ok
	})
	b := setup(t, at(m.url), withRoutes(route("POST /dies", async), route("POST /keyed", async, keyed)))

	b.run(t)
	place := b.post(t, "/dies", key, `{}`, with("X-Request-Id", "1")).header.Get("Location")
	b.await(t, place).refused(t, http.StatusConflict, "outcome-unknown")
	b.is(t, key, retrysafe.StateUnknown)
	place = b.post(t, "/keyed", other, `{}`).header.Get("Location")
	b.await(t, place).is(t, 201, "done", true)
	done := m.executed("")
	if len(done) != 3 || done[1].header.Get("Idempotency-Key") != other || done[2].header.Get("Idempotency-Key") != other {
		t.Errorf("executed as %+v", done)
	}
}

// Credentials are kept where they are named and the store is sealed; otherwise an
// operator is told.
func TestAsyncCredentials(t *testing.T) {
	t.Parallel()
	tokens := func(b *bundle) { b.config.Tenant = config.Tenant{From: "bearer"} }
	b := setup(t, tokens, withRoutes(route("POST /exports", async)))
	lost := func() bool {
		return strings.Contains(strings.Join(gateway.Warnings(&b.config), "\n"), "keep_credentials")
	}
	if !lost() {
		t.Error("no warning that the service does not get the token")
	}
	keep := withRoutes(route("POST /exports", async, func(s *config.Settings) { s.KeepCredentials = []string{"authorization"} }))
	b = build(t)
	tokens(b)
	keep(b)
	if _, err := gateway.New(&b.config, b.parts); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("credentials are kept in the clear: %v", err)
	}
	arrived := make(chan string, 1)
	b = setup(t, tokens, keep, sealing, answering(func(w http.ResponseWriter, r *http.Request) { arrived <- r.Header.Get("Authorization") }))
	b.run(t)
	if got := b.post(t, "/exports", key, `{}`, with("Authorization", "Bearer token")); got.status != http.StatusAccepted {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if got := <-arrived; got != "Bearer token" {
		t.Errorf("the upstream got %q", got)
	}
	if lost() {
		t.Error("a warning that the service does not get the token, and it does")
	}
}

// sealing encrypts the store.
func sealing(b *bundle) {
	secret := func(fill byte) []byte { return []byte(strings.Repeat(string(rune(fill)), sealed.KeySize)) }
	var err error
	b.config.Encryption.KeysFile = "keys.json"
	b.parts.Keyring, err = sealed.NewKeyring(secret('i'), 1, map[uint32][]byte{1: secret('k')})
	if err != nil {
		panic(err)
	}
}

// What is stored tells nothing where it is encrypted; replays work as ever.
func TestW82_Encryption(t *testing.T) {
	t.Parallel()
	b := setup(t, sealing)
	// The words are longer than what times, digests and ciphertext have by chance.
	const tenant, card = "acme-corporation", "4242-4242-4242-4242"
	for _, replayed := range []bool{false, true} {
		b.post(t, "/payments", key, `{"card":"`+card+`"}`, with("X-Tenant-Id", tenant)).is(t, 201, `{"got":{"card":"`+card+`"}}`, replayed)
	}
	for _, r := range b.records(t) {
		if text := fmt.Sprintf("%+v %s", r, storekit.AppendRecord(nil, &r)); strings.Contains(text, key) || strings.Contains(text, tenant) || strings.Contains(text, card) {
			t.Errorf("stored as %s", text)
		}
	}
	b.parts.Keyring = nil
	if _, err := gateway.New(&b.config, b.parts); err == nil {
		t.Error("what was to be sealed would be stored in the clear")
	}
	c := build(t)
	sealing(c)
	b = setup(t, over(c.store))
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	if _, err := gateway.New(&c.config, c.parts); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("a store that holds plain records is sealed: %v", err)
	}
}

// Where there are secrets, a reader of the store cannot guess requests by their fingerprints.
func TestFingerprintsHaveASecret(t *testing.T) {
	t.Parallel()
	seen := make(map[retrysafe.Fingerprint]bool)
	for _, secrets := range [][]httpkey.Secret{nil, {{ID: 1, Key: []byte(strings.Repeat("a", 32))}}, {{ID: 1, Key: []byte(strings.Repeat("b", 32))}}} {
		b := setup(t, func(b *bundle) { b.parts.Secrets = secrets })
		b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
		b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
		seen[b.state(t, key).Fingerprint] = true
	}
	if len(seen) != 3 {
		t.Errorf("three gateways have %d fingerprints of one request", len(seen))
	}
}

// What is not there is not found, and what is the gateway's own is never the
// upstream's.
func TestOwnPaths(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /exports", async)))
	for _, target := range []string{"/.retrysafe/", "/.retrysafe/requests/", "/.retrysafe/requests/0123", "/.retrysafe/requests/0123/" + key, "/.retrysafe/x"} {
		b.get(t, target).refused(t, http.StatusNotFound, "key-unknown")
		b.post(t, target, key, `{}`).refused(t, http.StatusNotFound, "key-unknown")
	}
	place := b.post(t, "/exports", key, `{}`).header.Get("Location")
	if got := b.do(t, b.request(t, http.MethodPost, place, `{}`)); got.status != http.StatusMethodNotAllowed {
		t.Errorf("got %d", got.status)
	}
	b.upstream.called(t, 0)
}

// Routes that tell a retry that the first attempt is under way say where to look.
func TestInFlightIsAccepted(t *testing.T) {
	t.Parallel()
	b, release := occupied(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Policy.InFlight = retrysafe.InFlightAccept })))
	got := b.post(t, "/payments", key+"slow", `{}`)
	got.refused(t, http.StatusAccepted, "in-flight")
	place := got.header.Get("Location")
	b.get(t, place).refused(t, http.StatusAccepted, "in-flight")
	release()
	b.get(t, place).is(t, 201, `{"got":{}}`, true)
}

// The default route runs requests later too, if it is told to.
func TestAsyncDefaults(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle) { b.config.Routes, b.config.Defaults.Async = nil, true })
	b.run(t)
	place := b.post(t, "/any/where", key, `{}`).header.Get("Location")
	got := b.await(t, place)
	got.is(t, 201, `{"got":{}}`, true)
	if got.header.Get("Location") != "/any/where/1" {
		t.Errorf("%v", got.header)
	}
}
