package gateway_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// occupied is a gateway whose upstream holds one request, and how to let it go.
func occupied(t *testing.T, change ...func(*bundle)) (b *bundle, release func()) {
	t.Helper()
	started, hold := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(hold) })
	b = setup(t, append(change, answering(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			close(started)
			<-hold
		}
		created(w, r)
	}))...)
	done := make(chan *response, 1)
	slow := b.request(t, http.MethodPost, "/payments", `{}`, with("X-Slow", "yes"), with("Idempotency-Key", key+"slow"))
	go func() {
		res, err := b.client.Do(slow)
		if err == nil {
			res.Body.Close()
		}
		close(done)
	}()
	<-started
	t.Cleanup(func() {
		let()
		<-done
	})
	return b, func() {
		let()
		<-done
	}
}

// A route that has reached its concurrency limit refuses new requests before anything
// is reserved; a retry of an answered request gets its answer.
func TestConcurrencyOfARoute(t *testing.T) {
	t.Parallel()
	one := func(s *config.Settings) { s.Concurrency = 1 }
	b := setup(t, withRoutes(route("POST /payments", one)))
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	store := b.store

	b, release := occupied(t, over(store), withRoutes(route("POST /payments", one), route("POST /others", one)))
	got := b.post(t, "/payments", other, `{}`)
	got.refused(t, http.StatusServiceUnavailable, "upstream-busy")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("told %v", got.header)
	}
	if _, err := store.Load(t.Context(), retrysafe.Ref{Scope: "header:acme", Key: other}); err == nil {
		t.Error("a refused request has left a record")
	}
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	b.post(t, "/payments", key+"slow", `{}`).refused(t, http.StatusConflict, "in-flight")
	b.post(t, "/payments", key, `[]`).refused(t, http.StatusUnprocessableEntity, "key-reused")
	b.post(t, "/others", key+"o", `{}`).is(t, 201, `{"got":{}}`, false)
	b.upstream.called(t, 2)
	release()
	b.post(t, "/payments", other, `{}`).is(t, 201, `{"got":{}}`, false)
}

// A place is given back once, however many requests have had it: otherwise there would be
// more of them each time.
func TestPlacesAreGivenBackOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		concurrency, inFlight, status int
		code                          string
	}{
		{1, 0, http.StatusServiceUnavailable, "upstream-busy"},
		{1, 9, http.StatusServiceUnavailable, "upstream-busy"},
		{0, 1, http.StatusTooManyRequests, "too-many-in-flight"},
		{9, 1, http.StatusTooManyRequests, "too-many-in-flight"},
	} {
		started, hold := make(chan struct{}), make(chan struct{})
		b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Concurrency, s.Required = c.concurrency, false })),
			func(b *bundle) { b.config.Limits.InFlight = c.inFlight },
			answering(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Slow") != "" {
					close(started)
					<-hold
				}
				created(w, r)
			}))
		for i := range 3 {
			b.post(t, "/payments", key+strconv.Itoa(i), `{}`).is(t, 201, `{"got":{}}`, false)
			b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).is(t, 201, `{"got":{}}`, false) // without a key
		}
		var slow sync.WaitGroup
		slow.Go(func() { b.post(t, "/payments", key, `{}`, with("X-Slow", "yes")).is(t, 201, `{"got":{}}`, false) })
		<-started
		for i := range 3 {
			b.post(t, "/payments", other+strconv.Itoa(i), `{}`).refused(t, c.status, c.code)
		}
		close(hold)
		slow.Wait()
		b.post(t, "/payments", other, `{}`).is(t, 201, `{"got":{}}`, false)
	}
}

// A tenant that has all its requests at the upstream leaves room for the others.
func TestW78_InFlightOfATenant(t *testing.T) {
	t.Parallel()
	b, release := occupied(t, func(b *bundle) { b.config.Limits.InFlight = 1 })
	got := b.post(t, "/keyed", key, `{}`)
	got.refused(t, http.StatusTooManyRequests, "too-many-in-flight")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("told %v", got.header)
	}
	if _, err := b.store.Load(t.Context(), retrysafe.Ref{Scope: "header:acme", Key: key}); err == nil {
		t.Error("a refused request has left a record")
	}
	b.post(t, "/keyed", key, `{}`, with("X-Tenant-Id", "rival")).is(t, 201, `{"got":{}}`, false)
	b.get(t, "/things")
	release()
	b.post(t, "/keyed", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.upstream.called(t, 4)
}

// meddler is a store that calls a function of the test first.
type meddler struct {
	retrysafe.Store
	before func(retrysafe.Write) // each Create
}

func (m *meddler) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	m.before(w)
	return m.Store.Create(context.WithoutCancel(ctx), w) // before may have taken all of its time
}

// A request that reserves its key and then finds the limit reached releases the key, and
// its place in the route; nothing of it runs.
func TestLastPlaceIsLost(t *testing.T) {
	t.Parallel()
	routes := withRoutes(route("POST /payments", func(s *config.Settings) { s.Concurrency = 1 }), route("POST /others"))
	for name, c := range map[string]struct {
		inFlight int
		taken    string // the route of the request that gets the place
	}{
		"upstream-busy":      {0, "/payments"},
		"too-many-in-flight": {1, "/others"},
	} {
		started, hold, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		m := &meddler{Store: memstore.New(nil)}
		b := setup(t, over(m), routes, func(b *bundle) { b.config.Limits.InFlight = c.inFlight }, answering(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") != "" {
				close(started)
				<-hold
			}
			created(w, r)
		}))
		overtake := sync.OnceFunc(func() { // between the guard's look and the reservation
			slow := b.request(t, http.MethodPost, c.taken, `{}`, with("X-Slow", "yes"), with("Idempotency-Key", other))
			go func() {
				defer close(done)
				if res, err := b.client.Do(slow); err == nil {
					res.Body.Close()
				}
			}()
			<-started
		})
		m.before = func(r retrysafe.Write) {
			if r.Key == key {
				overtake()
			}
		}
		got := b.post(t, "/payments", key, `{}`)
		x := b.last(t)
		close(hold)
		<-done
		if x.Handling != gateway.HandlingRefused || x.Code != name || x.Attempt != 0 {
			t.Errorf("told of %+v", x)
		}
		got.refused(t, map[string]int{"upstream-busy": 503, "too-many-in-flight": 429}[name], name)
		b.is(t, key, retrysafe.StateRetryable)
		b.upstream.called(t, 1)
		b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	}
}

// Requests without a key take places too, where none is required.
func TestConcurrencyWithoutKeys(t *testing.T) {
	t.Parallel()
	b, release := occupied(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Required, s.Concurrency = false, 1 })))
	b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).refused(t, http.StatusServiceUnavailable, "upstream-busy")
	if x := b.last(t); x.Handling != gateway.HandlingRefused || x.Code != "upstream-busy" || x.Status != http.StatusServiceUnavailable {
		t.Errorf("told of %+v", x)
	}
	release()
	b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).is(t, 201, `{"got":{}}`, false)
}

// A route that only observes refuses nothing, however many requests are at the upstream.
func TestConcurrencyOfAnObservedRoute(t *testing.T) {
	t.Parallel()
	b, _ := occupied(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Observe, s.Concurrency = true, 1 })))
	b.post(t, "/payments", other, `{}`).is(t, 201, `{"got":{}}`, false)
	b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).is(t, 201, `{"got":{}}`, false)
	if counts := b.Guard().Counts(); counts["upstream-busy (observed)"] != 0 {
		t.Errorf("counted %v", counts)
	}
}

// Many at once never exceed the bound, and each key has run once in the end.
func TestConcurrencyIsNeverExceeded(t *testing.T) {
	t.Parallel()
	const places = 3
	var mu sync.Mutex
	now, most := 0, 0
	b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Concurrency = places })), answering(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		created(w, r)
		mu.Lock()
		now--
		mu.Unlock()
	}))
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for {
				got := b.post(t, "/payments", key+string(rune('a'+i%26))+string(rune('a'+i/26)), `{}`)
				if got.status != http.StatusServiceUnavailable {
					got.is(t, 201, `{"got":{}}`, false)
					return
				}
			}
		})
	}
	all.Wait()
	b.upstream.called(t, 40)
	if most > places {
		t.Errorf("%d were at the upstream at once, want at most %d", most, places)
	}
}

// The limits of new keys are the guard's own.
func TestW78_NewKeysOfATenant(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle) { b.config.Limits = config.Limits{NewKeysPerSecond: 0.001, NewKeysBurst: 3} })
	for _, more := range []string{"", "2", "3"} {
		b.post(t, "/payments", key+more, `{}`).is(t, 201, `{"got":{}}`, false)
	}
	b.post(t, "/keyed", other, `{}`).refused(t, http.StatusTooManyRequests, "too-many-new-keys")
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	b.post(t, "/payments", other, `{}`, with("X-Tenant-Id", "rival")).is(t, 201, `{"got":{}}`, false)
}

// So are those of look-ups and of keys that are kept.
func TestW78_LookupsAndActiveKeysOfATenant(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle) { b.config.Limits = config.Limits{LookupsPerSecond: 0.001} })
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`).refused(t, http.StatusTooManyRequests, "too-many-lookups")
	b.post(t, "/payments", key, `{}`, with("X-Tenant-Id", "rival")).is(t, 201, `{"got":{}}`, false)

	b = setup(t, func(b *bundle) { b.config.Limits = config.Limits{ActiveKeys: 1} })
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", other, `{}`).refused(t, http.StatusTooManyRequests, "too-many-active-keys")
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
}

// The bodies of all guarded requests together are bounded, by what has arrived of them. A
// request that exceeds the bound is refused before anything is reserved; a request that
// no route guards does not count.
func TestW78_BodiesAreBounded(t *testing.T) {
	t.Parallel()
	b, release := occupied(t, func(b *bundle) { b.config.Server.MaxMemory = 64 << 10 }) // of which the slow one has a quarter
	long := `{"text": "` + strings.Repeat("x", 10<<10) + `"}`
	b.post(t, "/payments", other, long).refused(t, http.StatusServiceUnavailable, "gateway-busy")
	if _, err := b.store.Load(t.Context(), retrysafe.Ref{Scope: "header:acme", Key: other}); err == nil {
		t.Error("a refused request has left a record")
	}
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	b.post(t, "/payments", other, long, chunked).refused(t, http.StatusServiceUnavailable, "gateway-busy")
	b.post(t, "/payments", other+"s", `{}`).is(t, 201, `{"got":{}}`, false)
	b.do(t, b.request(t, http.MethodPut, "/payments", long)).is(t, 201, `{"got":`+long+`}`, false)
	release()
	b.post(t, "/payments", other, long).is(t, 201, `{"got":`+long+`}`, false)
	b.post(t, "/payments", other+"c", long, chunked).is(t, 201, `{"got":`+long+`}`, false) // alone it may be as large as the route allows
	if log := b.log.String(); !strings.Contains(log, "limit=memory") || !strings.Contains(log, "tenant="+retrysafe.HashKey("header:acme")) || !strings.Contains(log, "remedy=") {
		t.Errorf("the log does not name limit, tenant and remedy:\n%s", log)
	}
}

// A length that is only announced is not charged, so that it keeps no other tenant out.
func TestW78_AnnouncedBodiesAreNotCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle) { b.config.Server.MaxMemory = 4 << 20 })
	const idle = 100 // which announce 100 MB
	for i := range idle {
		c := dialTo(t, b.url)
		_, err := fmt.Fprintf(c, "POST /payments HTTP/1.1\r\nHost: x\r\nX-Tenant-Id: hostile\r\nIdempotency-Key: a-key-of-the-hostile-one-%d\r\nContent-Length: 1000000\r\n\r\n{", i)
		must(t, err)
	}
	for b.Budget().Memory().Used < idle*16<<10 { // until each is read as far as it has come
		runtime.Gosched()
	}
	for i := range 20 {
		b.post(t, "/payments", fmt.Sprint(key, i), `{}`).is(t, 201, `{"got":{}}`, false)
	}
	if used := b.Budget().Memory().Used; used > 2<<20 {
		t.Errorf("they hold %d bytes", used)
	}
}

// What an encoded body may become is charged once, in however many pieces it arrives.
func TestW78_DecodedSizeIsChargedOnce(t *testing.T) {
	t.Parallel()
	const decoded = 256 << 10
	routes := withRoutes(route("POST /payments"), route("POST /decode", func(s *config.Settings) { s.Decode, s.MaxRequest = true, decoded }))
	b := setup(t, func(b *bundle) { b.config.Server.MaxMemory = 4 * decoded }, routes) // a tenant may hold it once, and not twice

	end := holding(t, b) // alone a request may hold anything
	defer end()
	random := make([]byte, 20<<10)
	rand.NewChaCha8([32]byte{}).Read(random) // it is compressed to more than is read at a time
	body := `"` + hex.EncodeToString(random) + `"`
	b.post(t, "/decode", key, zip(body), with("Content-Encoding", "gzip")).is(t, 201, `{"got":`+body+`}`, false)

	b = setup(t, func(b *bundle) { b.config.Server.MaxMemory = decoded }, routes) // and not even once
	defer holding(t, b)()
	b.post(t, "/decode", key, zip(`{}`), with("Content-Encoding", "gzip")).refused(t, http.StatusServiceUnavailable, "gateway-busy")
	b.post(t, "/decode", key, `{}`).is(t, 201, `{"got":{}}`, false)
}

// A tenant that holds all that it may has no effect on another one, and its own requests
// succeed again when it has given back.
func TestW78_TenantsShareMemory(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle) { b.config.Server.MaxMemory = 1 << 20 })
	part := `{"text": "` + strings.Repeat("x", 40<<10)
	refused := make(chan string, 64)
	var all []net.Conn
	for i := range 32 { // each sends 40 KiB of 50, so that together they would hold more than there is
		c := dialTo(t, b.url)
		all = append(all, c)
		_, err := fmt.Fprintf(c, "POST /payments HTTP/1.1\r\nHost: x\r\nX-Tenant-Id: hostile\r\nIdempotency-Key: a-key-of-the-hostile-one-%d\r\nContent-Length: 50000\r\n\r\n%s", i, part)
		must(t, err)
		go func() {
			line, _ := bufio.NewReader(c).ReadString('\n')
			refused <- line
		}()
	}
	if line := <-refused; !strings.Contains(line, "503") {
		t.Errorf("the first answer is %q", line)
	}
	for i := range 20 {
		b.post(t, "/payments", fmt.Sprint(key, i), `{}`).is(t, 201, `{"got":{}}`, false)
		b.post(t, "/payments", fmt.Sprint(other, i), `{"text": "`+strings.Repeat("y", 100<<10)+`"}`)
	}
	if m := b.Budget().Memory(); m.Used > m.Most*3/4 {
		t.Errorf("%d of %d bytes are held", m.Used, m.Most)
	}
	for _, c := range all {
		c.Close()
	}
	for b.Budget().Memory().Used > 0 {
		runtime.Gosched()
	}
	b.post(t, "/payments", key+"again", part+`"}`, with("X-Tenant-Id", "hostile")).is(t, 201, `{"got":`+part+`"}}`, false)
}

// Answers that there is no memory for are sent, and their outcome is stored without them:
// a retry does not run again.
func TestW78_AnswersBeyondTheMemoryAreNotStored(t *testing.T) {
	t.Parallel()
	for name, announced := range map[string]bool{"announced": true, "in chunks": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			large := strings.Repeat("x", 700<<10)
			b := setup(t, func(b *bundle) { b.config.Server.MaxMemory = 1 << 20 }, answering(func(w http.ResponseWriter, r *http.Request) {
				if announced {
					w.Header().Set("Content-Length", strconv.Itoa(len(large)))
				}
				w.Header().Set("Location", "/payments/1")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, large)
			}))
			hold := holding(t, b) // so that this request is not alone
			got := b.post(t, "/payments", key, `{}`)
			if got.status != http.StatusCreated || got.body != large || got.err != nil {
				t.Fatalf("got %d, %d bytes, %v", got.status, len(got.body), got.err)
			}
			got = b.post(t, "/payments", key, `{}`)
			got.refused(t, http.StatusCreated, "response-not-stored")
			if got.header.Get("Location") != "/payments/1" {
				t.Errorf("told %v", got.header)
			}
			b.upstream.called(t, 1)
			if b.Budget().Refusals()["answers"] != 1 {
				t.Errorf("counted %v", b.Budget().Refusals())
			}
			hold()
			for b.Budget().Memory().Used > 0 {
				runtime.Gosched()
			}
			b.post(t, "/payments", other, `{}`).is(t, 201, large, false) // alone it is held, whatever its size
			b.post(t, "/payments", other, `{}`).is(t, 201, large, true)
		})
	}
}

// holding has a request of another tenant send half of its body, and returns how to end it.
func holding(t *testing.T, b *bundle) (end func()) {
	t.Helper()
	for b.Budget().Memory().Used != 0 { // a request that has its answer gives its memory back a little later
		runtime.Gosched()
	}
	c := dialTo(t, b.url)
	_, err := io.WriteString(c, "POST /payments HTTP/1.1\r\nHost: x\r\nX-Tenant-Id: holder\r\nIdempotency-Key: a-key-of-the-holder\r\nContent-Length: 100\r\n\r\n{")
	must(t, err)
	for b.Budget().Memory().Used == 0 {
		runtime.Gosched()
	}
	return func() { c.Close() }
}

// A stored answer that there is no memory for is asked for again; it is neither lost nor
// run again.
func TestW78_ReplaysBeyondTheMemoryAreAskedForAgain(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 700<<10)
	b := setup(t, func(b *bundle) { b.config.Server.MaxMemory = 1 << 20 }, answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Of-The-Answer", "1")
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, large)
	}))
	b.post(t, "/payments", key, `{}`).is(t, 201, large, false)
	end := holding(t, b)
	got := b.post(t, "/payments", key, `{}`)
	got.refused(t, http.StatusServiceUnavailable, "gateway-busy")
	if h := got.header; h.Get("Retry-After") != "1" || h.Get("Idempotent-Replayed") != "" || h.Get("Location") != "" || !strings.Contains(got.body, "The answer is stored") {
		t.Errorf("told %v %s", h, got.body)
	}
	rec, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(`{}`))
	r.RemoteAddr = "127.0.0.1:1"
	for name, value := range map[string]string{"X-Tenant-Id": "acme", "Idempotency-Key": key, "Content-Type": "application/json"} {
		r.Header.Set(name, value)
	}
	rec.Header().Set("Connection", "close") // as the listener sets it before it shuts down
	b.ServeHTTP(rec, r)
	if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Connection") != "close" || rec.Header().Get("X-Of-The-Answer") != "" {
		t.Errorf("told %d %v", rec.Code, rec.Header())
	}
	var last gateway.Exchange
	for last.Handling != gateway.HandlingRefused {
		last = b.last(t)
	}
	if last.Code != "gateway-busy" || last.Status != http.StatusServiceUnavailable {
		t.Errorf("told of %+v", last)
	}
	end()
	for b.Budget().Memory().Used > 0 {
		runtime.Gosched()
	}
	b.post(t, "/payments", key, `{}`).is(t, 201, large, true)
	b.upstream.called(t, 1)
}

// Small answers are a part of what each request counts, so that a tenant which may send a
// request gets its answer, fresh and again.
func TestW78_SmallAnswersAreNotCharged(t *testing.T) {
	t.Parallel()
	const request = 16 << 10
	small := strings.Repeat("x", 4000)
	b := setup(t, func(b *bundle) { b.config.Server.MaxMemory = 3 * request }, // one more beside the holder's, and no byte more
		answering(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, small) }))
	defer holding(t, b)()
	for _, replayed := range []bool{false, true, true} {
		for b.Budget().Memory().Used != request {
			runtime.Gosched()
		}
		b.post(t, "/payments", key, `{}`).is(t, 200, small, replayed)
	}
}

// What is not guarded in the end is not charged: requests without a key, and observed ones.
func TestW78_PassedBodiesAreNotCharged(t *testing.T) {
	t.Parallel()
	long := `{"text": "` + strings.Repeat("x", 200<<10) + `"}`
	b := setup(t, func(b *bundle) { b.config.Server.MaxMemory = 64 << 10 },
		withRoutes(route("POST /optional", func(s *config.Settings) { s.Required = false }), route("POST /observed", func(s *config.Settings) { s.Observe = true })))
	end := holding(t, b)
	defer end()
	b.do(t, b.request(t, http.MethodPost, "/optional", long)).is(t, 201, `{"got":`+long+`}`, false)
	b.post(t, "/observed", key, long).is(t, 201, `{"got":`+long+`}`, false)
	b.post(t, "/optional", key, long).refused(t, http.StatusServiceUnavailable, "gateway-busy")
	b.upstream.called(t, 2)
}

// Callers without a verified name are also counted by their address, and behind a trusted
// proxy by the one that it has appended.
func TestW78_InventedTokensShareAnAddress(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"bearer", "none"} {
		b := build(t, func(b *bundle) {
			b.config.Tenant = config.Tenant{From: from, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.254/32")}}
			b.config.Server.MaxMemory = 1 << 20
		})
		open := 0
		var ended sync.WaitGroup
		hold := make(chan struct{})
		ask := func(n int, remote, forwarded string, body io.Reader) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", body)
			r.RemoteAddr = remote
			r.Header.Set("Authorization", fmt.Sprintf("Bearer invented-%d", n))
			r.Header.Set("Idempotency-Key", fmt.Sprint(key, n))
			r.Header.Set("Content-Type", "application/json")
			for line := range strings.FieldsFuncSeq(forwarded, func(c rune) bool { return c == '|' }) {
				r.Header.Add("X-Forwarded-For", line)
			}
			rec := httptest.NewRecorder()
			b.ServeHTTP(rec, r)
			return rec.Code
		}
		for n := range 100 {
			began := make(chan struct{})
			status := make(chan int, 1)
			ended.Go(func() { status <- ask(n, "192.0.2.1:1000", "", &blocked{began: began, until: hold}) })
			select {
			case <-began:
				open++
			case got := <-status:
				if got != http.StatusServiceUnavailable {
					t.Errorf("%s: got %d", from, got)
				}
			}
		}
		if open != 32 { // of 64
			t.Errorf("%s: one address has %d requests, want half of 64", from, open)
		}
		for n, other := range [][2]string{{"192.0.2.2:1000", ""}, {"192.0.2.254:1000", "192.0.2.1, 198.51.100.7"}} {
			if got := ask(200+n, other[0], other[1], strings.NewReader("{}")); got != http.StatusCreated {
				t.Errorf("%s: a client at %v got %d", from, other, got)
			}
		}
		for n, forwarded := range []string{"198.51.100.7, 192.0.2.1", "198.51.100.7|192.0.2.1"} { // in one line, or in one of the proxy's own
			if got := ask(300+n, "192.0.2.254:1000", forwarded, strings.NewReader("{}")); got != http.StatusServiceUnavailable {
				t.Errorf("%s: the address behind the proxy, in %q, got %d", from, forwarded, got)
			}
		}
		close(hold)
		ended.Wait()
		if left := b.Budget().Memory().Used; left != 0 {
			t.Errorf("%s: %d bytes are left over", from, left)
		}
	}
}

// blocked is a body that does not come.
type blocked struct {
	began chan struct{}
	until chan struct{}
}

func (b *blocked) Read([]byte) (int, error) {
	close(b.began)
	<-b.until
	return 0, io.ErrUnexpectedEOF
}

// dialTo connects to a server until the test ends.
func dialTo(t *testing.T, url string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// A request that would ask for one more large answer, while those of its tenant wait to be
// taken in and others are at work, waits, and is then refused before it is sent. It can be
// sent again.
func TestLargeAnswersAreNotAskedForInHeaps(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /reports", func(s *config.Settings) { s.Timeout = 4 * time.Second })), answering(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 100_000))
	}))
	if got := b.post(t, "/reports", key, `{}`); got.status != http.StatusOK || len(got.body) != 100_000 {
		t.Fatalf("got %d, %d bytes", got.status, len(got.body))
	}
	other := admission.ConsumerOf("other", netip.Addr{})
	if !b.Budget().BeginStep(other) {
		t.Fatal("there is no turn")
	}
	defer b.Budget().EndStep(other)
	claim := func() *admission.Claim {
		c := new(admission.Claim)
		if limit := c.Open(b.Budget(), "header:acme", netip.Addr{}, 1); limit != admission.LimitNone {
			t.Fatal(limit)
		}
		t.Cleanup(c.Close)
		return c
	}
	var all sync.WaitGroup
	for range 100 {
		c := claim()
		all.Go(func() { c.Turn(1<<40, 5*time.Second)() })
	}
	for range 2 * runtime.GOMAXPROCS(0) {
		end, ok := claim().BeginExchange("POST /reports", time.Minute)
		if !ok {
			t.Fatal("no exchange may begin")
		}
		defer end()
	}
	b.post(t, "/reports", key+"2", `{}`).refused(t, http.StatusServiceUnavailable, "gateway-busy")
	b.upstream.called(t, 1)
	if log := b.log.String(); !strings.Contains(log, "limit=exchanges") || !strings.Contains(log, "remedy=") {
		t.Errorf("the log does not name the limit: %s", log)
	}
	all.Wait()
	got := b.post(t, "/reports", key+"2", `{}`)
	for got.status == http.StatusServiceUnavailable { // on a busy machine the others end late
		got = b.post(t, "/reports", key+"2", `{}`)
	}
	if got.status != http.StatusOK {
		t.Errorf("sent again: %d %s", got.status, got.body)
	}
	b.upstream.called(t, 2)
}
