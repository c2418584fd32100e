package conform_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A shop is what an API sells: a handler that has effects, counts them, and can be made to
// be slow, to fail, to refuse or to die by the header X-Test.
type shop struct {
	mu      sync.Mutex
	change  *sync.Cond
	effects map[string]int // by key
	number  int
	arrived map[string]int // requests under a key that have come in
	settled map[string]int // those of them that are answered, or wait in the handler
	hook    string         // where webhooks go
	// anonymous webhooks do not say which order they are about.
	anonymous bool
	slowest   func(r *http.Request)
}

func newShop() *shop {
	s := &shop{effects: map[string]int{}, arrived: map[string]int{}, settled: map[string]int{}}
	s.change = sync.NewCond(&s.mu)
	return s
}

// rawKey returns the key of a request without quotes, for the shop's own books.
func rawKey(r *http.Request) string { return strings.Trim(r.Header.Get("Idempotency-Key"), `"`) }

// counting counts requests before anything else sees them, so that a slow handler can wait
// until its retries are there. With that no verdict depends on a race being won.
func (s *shop) counting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := rawKey(r)
		s.bump(s.arrived, key)
		defer s.bump(s.settled, key)
		next.ServeHTTP(w, r)
	})
}

func (s *shop) bump(of map[string]int, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of[key]++
	s.change.Broadcast()
}

// hold waits until another request with the same key has come in, and all of them are
// answered or wait here; or for a while, if none comes.
func (s *shop) hold(key string) {
	over := false
	timer := time.AfterFunc(10*time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		over = true
		s.change.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled[key]++
	s.change.Broadcast()
	for !over && (s.arrived[key] < 2 || s.settled[key] < s.arrived[key]) {
		s.change.Wait()
	}
	s.settled[key]--
}

// idle waits for a channel. Meanwhile the request counts as settled, so that hold does not
// wait for it.
func (s *shop) idle(key string, done <-chan struct{}) {
	s.bump(s.settled, key)
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled[key]--
}

type order struct {
	Amount json.Number `json:"amount"`
}

// sell is the handler without any keys.
func (s *shop) sell(w http.ResponseWriter, r *http.Request) {
	var o order
	data, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(data, &o) != nil || o.Amount == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch r.Header.Get("X-Test") {
	case "slow":
		s.hold(rawKey(r))
		if s.slowest != nil {
			s.slowest(r)
		}
	case "fail":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case "limit":
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.mu.Lock()
	s.effects[rawKey(r)]++
	s.number++
	n := s.number
	s.mu.Unlock()
	s.sendHook(r.Context(), fmt.Sprintf(`{"id": "order_%06d"}`, n))
	if r.Header.Get("X-Test") == "crash" {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Location", fmt.Sprintf("%s/%d", r.URL.Path, n))
	h.Set("ETag", fmt.Sprintf(`"v%d"`, n))
	h.Add("Set-Cookie", fmt.Sprintf("session=%d", n))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "{ \"id\": \"order_%06d\",\"amount\": %s }\n", n, o.Amount)
}

func (s *shop) sendHook(ctx context.Context, body string) {
	if s.hook == "" {
		return
	}
	if s.anonymous {
		body = "sold"
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "http://"+s.hook, strings.NewReader(body))
	if err != nil {
		return
	}
	res, err := http.DefaultClient.Do(r)
	if err == nil {
		_ = res.Body.Close()
	}
}

// ledger says how many effects a key had.
func (s *shop) ledger(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make([]int, s.effects[r.URL.Query().Get("key")])
	_ = json.NewEncoder(w).Encode(map[string]any{"effects": rows})
}

// A stored is what an API remembers of a key.
type stored struct {
	running, unknown bool
	print            string
	request          []byte
	answer           *httptest.ResponseRecorder
	done             chan struct{}
}

// A zooAPI is a payment API that keeps its keys in memory. It was written for these tests
// and shares nothing with retrysafe. Without a flaw it keeps the whole contract.
type zooAPI struct {
	*shop
	flaw string

	keys    sync.Mutex
	records map[string]*stored
	down    bool
}

func newZooAPI(flaw string) *zooAPI {
	a := &zooAPI{shop: newShop(), flaw: flaw, records: map[string]*stored{}}
	a.anonymous = flaw == "anonymous webhook twice"
	if flaw == "lost on disconnect" {
		a.slowest = func(r *http.Request) { // the connection may be closed at any moment now
			select {
			case <-r.Context().Done():
			case <-time.After(time.Second):
			}
		}
	}
	return a
}

func (a *zooAPI) handler() http.Handler {
	mux := http.NewServeMux()
	guarded := a.counting(http.HandlerFunc(a.serve))
	mux.Handle("/payments", guarded)
	mux.Handle("/transfers", guarded)
	mux.Handle("/payments/{id}/capture", guarded)
	if a.flaw == "partial coverage" {
		mux.Handle("POST /payments/{id}/refunds", a.counting(http.HandlerFunc(a.sell)))
	} else {
		mux.Handle("/payments/{id}/refunds", guarded)
	}
	mux.HandleFunc("GET /ledger", a.ledger)
	return mux
}

func refuse(w http.ResponseWriter, status int, title string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": title, "status": status})
}

// parse returns the key of a request, or why it has none.
func (a *zooAPI) parse(r *http.Request) (key, why string) {
	lines := r.Header.Values("Idempotency-Key")
	switch {
	case len(lines) == 0 && a.flaw == "key optional":
		return "", ""
	case len(lines) == 0:
		return "", "Idempotency-Key is missing"
	case len(lines) > 1 && a.flaw != "first of two keys":
		return "", "Idempotency-Key is repeated"
	}
	key = lines[0]
	switch {
	case a.flaw == "quoted is not bare" && strings.Count(key, `"`) != 1 && key != "":
		return key, ""
	case len(key) > 1 && key[0] == '"' && key[len(key)-1] == '"':
		key = key[1 : len(key)-1]
	case strings.Contains(key, `"`) && a.flaw != "half quotes":
		return "", "Idempotency-Key is malformed"
	}
	switch {
	case key == "" && a.flaw != "empty key":
		return "", "Idempotency-Key is malformed"
	case len(key) > 255 && a.flaw == "keys are cut":
		key = key[:255]
	case len(key) > 255:
		return "", "Idempotency-Key is too long"
	}
	if a.flaw == "case is folded" {
		key = strings.ToLower(key)
	}
	return key, ""
}

func (a *zooAPI) serve(w http.ResponseWriter, r *http.Request) {
	tenant := map[string]string{"Bearer a": "a", "Bearer b": "b"}[r.Header.Get("Authorization")]
	if r.Method == http.MethodGet && a.flaw != "get is replayed" {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	key, why := a.parse(r)
	if why == "" && tenant == "" && (a.flaw == "401 stored" || a.flaw == "replay without credentials") {
		tenant = "a"
		a.keys.Lock()
		rec := a.records[tenant+"/"+key]
		a.keys.Unlock()
		if a.flaw == "401 stored" && rec == nil {
			a.lookup(w, r, tenant+"/"+key, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
			return
		}
		if a.flaw != "401 stored" && rec != nil && rec.answer != nil {
			a.replay(w, rec)
			return
		}
		tenant = ""
	}
	switch {
	case tenant == "":
		refuse(w, http.StatusUnauthorized, "Who are you?")
	case why != "" && a.flaw == "unexplained":
		w.WriteHeader(http.StatusBadRequest)
	case why != "":
		refuse(w, http.StatusBadRequest, why)
	case a.flaw == "key optional" && key == "":
		a.sell(w, r)
	case a.flaw == "global key":
		a.lookup(w, r, key, http.HandlerFunc(a.sell))
	default:
		a.lookup(w, r, tenant+"/"+key, http.HandlerFunc(a.sell))
	}
}

// print returns what makes two requests the same.
func (a *zooAPI) print(r *http.Request, body []byte) string {
	switch a.flaw {
	case "no fingerprint":
		return ""
	case "raw fingerprint":
		return r.Method + r.URL.Path + string(body)
	case "body only":
		return string(canonical(body, false))
	}
	return r.Method + r.URL.Path + string(canonical(body, a.flaw == "numbers are floats"))
}

// canonical writes a JSON document in one way.
func canonical(body []byte, floats bool) []byte {
	var doc any
	d := json.NewDecoder(bytes.NewReader(body))
	if !floats {
		d.UseNumber()
	}
	if d.Decode(&doc) != nil {
		return body
	}
	var exact func(v any) any
	exact = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			if n, ok := new(big.Rat).SetString(v.String()); ok {
				return n.RatString()
			}
		case map[string]any:
			for name := range v {
				v[name] = exact(v[name])
			}
		case []any:
			for i := range v {
				v[i] = exact(v[i])
			}
		}
		return v
	}
	out, _ := json.Marshal(exact(doc))
	return out
}

// lookup is the guard: it runs next, or answers by what it remembers.
func (a *zooAPI) lookup(w http.ResponseWriter, r *http.Request, key string, next http.Handler) {
	body, err := io.ReadAll(r.Body)
	print := a.print(r, body)
	if err != nil && a.flaw == "half a request" {
		answer := httptest.NewRecorder()
		answer.WriteHeader(http.StatusBadRequest)
		a.keys.Lock()
		a.records[key] = &stored{print: print, answer: answer, done: make(chan struct{})}
		a.keys.Unlock()
	}
	if err != nil {
		return
	}
	if a.flaw == "hash in the key" {
		key += fmt.Sprintf("%x", sha256.Sum256([]byte(print)))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))

	a.keys.Lock()
	if a.down {
		a.keys.Unlock()
		if a.flaw == "fails open" {
			next.ServeHTTP(w, r)
			return
		}
		refuse(w, http.StatusServiceUnavailable, "The store is not there")
		return
	}
	rec := a.records[key]
	if rec != nil && rec.print != print && r.Method != http.MethodGet {
		if a.flaw == "mismatch forgets" {
			delete(a.records, key)
		}
		a.keys.Unlock()
		a.mismatch(w, rec)
		return
	}
	if rec != nil {
		running, unknown := rec.running, rec.unknown
		a.keys.Unlock()
		switch {
		case unknown:
			refuse(w, http.StatusConflict, "Outcome is unknown")
		case running:
			a.inFlight(w, r, rec)
		default:
			a.replay(w, rec)
		}
		return
	}
	if r.Method == http.MethodGet {
		a.keys.Unlock()
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	rec = &stored{running: true, print: print, request: body, done: make(chan struct{})}
	if a.flaw != "check then insert" {
		a.records[key] = rec
	}
	a.keys.Unlock()
	a.execute(w, r, key, rec, next)
}

// execute runs the handler under a record.
func (a *zooAPI) execute(w http.ResponseWriter, r *http.Request, key string, rec *stored, next http.Handler) {
	answer := httptest.NewRecorder()
	defer func() {
		died := recover()
		a.expiry(answer.Header()) // before others see it
		a.keys.Lock()
		defer a.keys.Unlock()
		rec.running = false
		switch lost := a.flaw == "lost on disconnect" && r.Context().Err() != nil; {
		case died != nil && a.flaw == "stuck after a crash":
			rec.running = true
		case died != nil && a.flaw == "stored after the effect", lost:
			delete(a.records, key)
		case died != nil:
			rec.unknown = true
			a.records[key] = rec
		case answer.Code >= 500 && a.flaw != "5xx stored", answer.Code == 429 && a.flaw != "429 stored":
			delete(a.records, key)
		default:
			rec.answer = answer
			a.records[key] = rec
		}
		close(rec.done)
		if died != nil {
			panic(died)
		}
		write(w, answer.Code, answer.Header(), answer.Body.Bytes())
	}()
	next.ServeHTTP(answer, r)
}

func (a *zooAPI) expiry(h http.Header) {
	at := time.Now().Add(24 * time.Hour)
	if a.flaw == "expired at once" {
		at = time.Now().Add(-24 * time.Hour)
	}
	h.Set("Idempotency-Expires", at.UTC().Format(http.TimeFormat))
}

func write(w http.ResponseWriter, status int, h http.Header, body []byte) {
	for name, values := range h {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (a *zooAPI) mismatch(w http.ResponseWriter, rec *stored) {
	switch a.flaw {
	case "mismatch leaks":
		refuse(w, http.StatusUnprocessableEntity, "The first request was "+string(rec.request))
	case "mismatch is a conflict":
		refuse(w, http.StatusConflict, "Idempotency-Key is already used")
	default:
		refuse(w, http.StatusUnprocessableEntity, "Idempotency-Key is already used")
	}
}

func (a *zooAPI) inFlight(w http.ResponseWriter, r *http.Request, rec *stored) {
	switch a.flaw {
	case "in flight is 200":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"processing"}`)
		return
	case "in flight waits": // no flaw at all
		a.idle(rawKey(r), rec.done)
		a.replay(w, rec)
		return
	case "no Retry-After":
	case "Retry-After is the lease":
		w.Header().Set("Retry-After", "600")
	default:
		w.Header().Set("Retry-After", "1")
	}
	refuse(w, http.StatusConflict, "A request is outstanding for this Idempotency-Key")
}

func (a *zooAPI) replay(w http.ResponseWriter, rec *stored) {
	h, body, status := rec.answer.Header().Clone(), rec.answer.Body.Bytes(), rec.answer.Code
	if a.flaw != "cookie replayed" {
		h.Del("Set-Cookie")
	}
	if a.flaw != "no marker" {
		h.Set("Idempotent-Replayed", "true")
	}
	switch a.flaw {
	case "written anew":
		var doc any
		if json.Unmarshal(body, &doc) == nil {
			body, _ = json.Marshal(doc)
		}
	case "location lost":
		h.Del("Location")
	case "201 becomes 200":
		status = http.StatusOK
	case "webhook twice":
		a.sendHook(context.Background(), string(body))
	case "anonymous webhook twice":
		a.sendHook(context.Background(), "sold")
	}
	a.expiry(h)
	write(w, status, h, body)
}

// serveZoo starts an API and returns its URL.
func serveZoo(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = quiet
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// store returns the functions that take the store of the keys away and give it back.
func (a *zooAPI) store() (down, up func(context.Context) error) {
	set := func(to bool) func(context.Context) error {
		return func(context.Context) error {
			a.keys.Lock()
			defer a.keys.Unlock()
			a.down = to
			return nil
		}
	}
	return set(true), set(false)
}

// restart forgets what a process would forget.
func (a *zooAPI) restart(context.Context) error {
	if a.flaw == "forgets at a restart" {
		a.keys.Lock()
		defer a.keys.Unlock()
		a.records = map[string]*stored{}
	}
	return nil
}
