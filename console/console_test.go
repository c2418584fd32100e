package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

const (
	anna   = "a-token-of-anna-only"
	bert   = "a-token-of-bert-only"
	reader = "a-token-of-a-reader"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A site is a console with three people over a store.
type site struct {
	t       *testing.T
	store   retrysafe.Store
	box     outbox.Store
	enqueue func(outbox.Message) // in a transaction of its own
	service *operator.Service
	handler *console.Handler
	url     string
	log     *logBuffer
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a site over SQLite.
func start(t *testing.T, change ...func(*console.Options)) *site {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return startOver(t, &site{store: store, box: store.Outbox(), enqueue: func(m outbox.Message) {
		t.Helper()
		tx, err := store.DB().BeginTx(t.Context(), nil)
		must(t, err)
		must(t, store.Tx(tx).Enqueue(t.Context(), m))
		must(t, tx.Commit())
	}}, change...)
}

// startPostgres starts a site over PostgreSQL.
func startPostgres(t *testing.T) *site {
	t.Helper()
	store, err := pgstore.Open(t.Context(), testservers.Shared(t), nil)
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return startOver(t, &site{store: store, box: store.Outbox(), enqueue: func(m outbox.Message) {
		t.Helper()
		tx, err := store.Pool().Begin(t.Context())
		must(t, err)
		must(t, store.Tx(tx).Enqueue(t.Context(), m))
		must(t, tx.Commit(t.Context()))
	}})
}

// onStores runs a test over each store that a gateway may have and that tests can start.
func onStores(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *site{
		"sqlite": func(t *testing.T) *site { return start(t) }, "postgres": startPostgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func startOver(t *testing.T, s *site, change ...func(*console.Options)) *site {
	t.Helper()
	s.t, s.log = t, new(logBuffer)
	var err error
	s.service, err = operator.New(s.store, nil)
	must(t, err)
	o := console.Options{
		Service: s.service, Outbox: s.box, Prefix: "/retrysafe", Logger: slog.New(slog.NewTextHandler(s.log, nil)),
		Tokens: []console.Token{{Name: "anna", Role: "act", Secret: anna}, {Name: "bert", Role: "act", Secret: bert}, {Name: "reader", Role: "read", Secret: reader}},
	}
	for _, f := range change {
		f(&o)
	}
	s.handler, err = console.New(o)
	must(t, err)
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	t.Cleanup(func() { must(t, s.handler.Close(context.WithoutCancel(t.Context()))) })
	s.url = server.URL + "/retrysafe/api/v1"
	return s
}

// An answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// at returns a member of the body, by names with dots between.
func (a *answer) at(path string) any {
	var v any = a.body
	for _, name := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// send sends a request with a token and headers, as name and value.
func (s *site) send(token, method, path string, body any, header ...string) *answer {
	s.t.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		var err error
		text, err = json.Marshal(b)
		must(s.t, err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(text))
	must(s.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	must(s.t, err)
	a := &answer{status: res.StatusCode, header: res.Header, text: string(got)}
	d := json.NewDecoder(bytes.NewReader(got))
	d.UseNumber()
	_ = d.Decode(&a.body) // an answer that is not JSON has no members
	checkAnswer(s.t, method, path, a)
	return a
}

// wants fails the test unless the request got this status.
func (s *site) wants(a *answer, status int, what string) *answer {
	s.t.Helper()
	if a.status != status {
		s.t.Fatalf("%s: got %d %s, want %d", what, a.status, a.text, status)
	}
	return a
}

// record stores a record and returns it, and its path.
func (s *site) record(key string, state retrysafe.State) (retrysafe.Record, string) {
	s.t.Helper()
	w := retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /charges", Fingerprint: retrysafe.Fingerprint{Alg: 1}, Owner: retrysafe.Owner{1},
		State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1, Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseQuarantine, Retain: time.Hour,
	}}
	if state == retrysafe.StateCompleted {
		w.Request = []byte("the request with 4242424242424242")
	}
	r, err := s.store.Create(s.t.Context(), w)
	must(s.t, err)
	next := r.Update()
	next.Term, next.State = time.Hour, state
	switch state {
	case retrysafe.StateCompleted:
		next.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Location": {"/payments/9"}}, Body: []byte("the answer with 4111111111111111")}
	case retrysafe.StateUnknown:
		next.Reason = "the provider answered 502"
	default:
	}
	r, err = s.store.Swap(s.t.Context(), next)
	must(s.t, err)
	return r, "/keys/" + adminwire.FormatRef(r.Ref)
}

// Without a token there is nothing, and with a wrong one as little. Neither is in the log.
func TestAPINeedsAToken(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, path := s.record("k", retrysafe.StateUnknown)
	for _, p := range []string{"/whoami", "/keys", path, "/nothing", "/outbox/depth"} {
		a := s.wants(s.send("", "GET", p, nil), 401, "no token on "+p)
		if a.header.Get("WWW-Authenticate") != `Bearer realm="retrysafe"` || a.header.Get("Content-Type") != "application/problem+json" || a.at("code") != "token-missing" {
			t.Errorf("%s: got %v %s", p, a.header, a.text)
		}
	}
	s.wants(s.send("a-token-that-is-wrong", "GET", "/keys", nil), 401, "a wrong token")
	s.wants(s.send("", "GET", "/whoami", nil, "Cookie", "retrysafe_session=made-up"), 401, "a session that there is not")
	for status, tries := 0, 0; status != 429; tries++ {
		if tries > 10_000 {
			t.Fatal("wrong tokens are not limited")
		}
		status = s.send(fmt.Sprint("a-token-that-is-wrong-", tries), "GET", "/keys", nil).status
	}
	if a := s.wants(s.send(anna, "GET", "/whoami", nil), 200, "the right token after wrong ones"); a.at("name") != "anna" || a.at("role") != "act" {
		t.Errorf("got %s", a.text)
	}
	if log := s.log.String(); !strings.Contains(log, "wrong token") || strings.Contains(log, "a-token") {
		t.Errorf("the log is\n%s", log)
	}
}

// Tokens that would not tell people apart, or are too weak, are refused.
func TestNewRefusesTokens(t *testing.T) {
	t.Parallel()
	s := start(t)
	good := console.Token{Name: "anna", Role: "act", Secret: anna}
	for what, list := range map[string][]console.Token{
		"none":                {},
		"short":               {{Name: "anna", Role: "act", Secret: "short"}},
		"no name":             {{Role: "act", Secret: anna}},
		"a line break":        {{Name: "a\nb", Role: "act", Secret: anna}},
		"a role there is not": {{Name: "anna", Role: "root", Secret: anna}},
		"no role":             {{Name: "anna", Secret: anna}},
		"one name twice":      {good, {Name: "anna", Role: "read", Secret: bert}},
		"one secret twice":    {good, {Name: "bert", Role: "read", Secret: anna}},
	} {
		if _, err := console.New(console.Options{Service: s.service, Tokens: list}); err == nil || strings.Contains(err.Error(), anna) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	for _, prefix := range []string{"retrysafe", "/retrysafe/", "/", "/{x}"} {
		if _, err := console.New(console.Options{Service: s.service, Tokens: []console.Token{good}, Prefix: prefix}); err == nil {
			t.Errorf("the prefix %q is accepted", prefix)
		}
	}
	if _, err := console.New(console.Options{Tokens: []console.Token{good}}); err == nil {
		t.Error("no service is accepted")
	}
}

// The role read sees records without what clients sent and got, and changes nothing.
func TestRoleRead(t *testing.T) { onStores(t, roleRead) }

func roleRead(t *testing.T, s *site) {
	t.Helper()
	r, path := s.record("k", retrysafe.StateCompleted)
	for _, p := range []string{path, "/keys", "/keys?scope=tenant&key=k"} {
		a := s.wants(s.send(reader, "GET", p, nil), 200, p)
		for _, secret := range []string{"41111111", "42424242", "/payments/9", "NDI0Mj"} {
			if strings.Contains(a.text, secret) {
				t.Errorf("%s shows %q to a reader: %s", p, secret, a.text)
			}
		}
		if !strings.Contains(a.text, `"header_names":["Location"]`) || !strings.Contains(a.text, `"body_bytes":32`) {
			t.Errorf("%s: got %s", p, a.text)
		}
	}
	act := map[string]any{"why": "because", "revision": r.Revision}
	for _, p := range []string{path + "/resolve", path + "/release", path + "/forget", path + "/erase", path + "/reveal", path + "/redrive", path + "/decline",
		"/selections", "/batches", "/quarantines", "/reconcile", "/outbox/messages/1/drop", "/outbox/messages/1/reveal"} {
		if a := s.wants(s.send(reader, "POST", p, act), 403, p); a.at("code") != "forbidden" {
			t.Errorf("%s: got %s", p, a.text)
		}
	}
	if now, err := s.service.Show(t.Context(), r.Ref); err != nil || now.Revision != r.Revision {
		t.Errorf("a reader has changed the record: %v, %v", now.Revision, err)
	}
	if entries, err := s.service.Audit(t.Context(), operator.AuditFilter{}); err != nil || len(entries) != 0 {
		t.Errorf("the audit has %v, %v", entries, err)
	}
}

// What clients sent and got is shown to the role act only when asked for, and that is in
// the audit.
func TestRevealsAreAudited(t *testing.T) { onStores(t, revealsAreAudited) }

func revealsAreAudited(t *testing.T, s *site) {
	t.Helper()
	r, path := s.record("k", retrysafe.StateCompleted)
	a := s.wants(s.send(anna, "GET", path, nil), 200, "show")
	if strings.Contains(a.text, "41111111") || !strings.Contains(a.text, "/payments/9") {
		t.Errorf("got %s, want headers, and no body", a.text)
	}
	a = s.wants(s.send(anna, "POST", path+"/reveal", map[string]any{"revision": r.Revision, "why": "the client asks"}), 200, "reveal")
	if a.at("record.answer.body") != "the answer with 4111111111111111" || a.at("entry.by") != "anna" {
		t.Errorf("got %s", a.text)
	}
	a = s.wants(s.send(reader, "GET", "/audit?verb=reveal", nil), 200, "audit")
	if !strings.Contains(a.text, `"why":"the client asks"`) || strings.Contains(a.text, "41111111") {
		t.Errorf("the audit is %s", a.text)
	}
	s.wants(s.send(anna, "POST", path+"/reveal", map[string]any{"revision": r.Revision}), 400, "reveal without a reason")
	if log := s.log.String(); strings.Contains(log, "41111111") || strings.Contains(log, anna) {
		t.Errorf("the log is\n%s", log)
	}
}

// Of two operators on one record one wins. The other is told what the record is now, and
// both are in the audit by the names of their tokens, whatever a request says.
func TestTwoOperatorsOnOneKey(t *testing.T) { onStores(t, twoOperatorsOnOneKey) }

func twoOperatorsOnOneKey(t *testing.T, s *site) {
	t.Helper()
	r, path := s.record("k", retrysafe.StateUnknown)
	act := map[string]any{"revision": r.Revision, "why": "ch_1 is there", "answer": map[string]any{"status": 201, "headers": map[string][]string{"content-type": {"text/plain"}}, "body": "paid"}}
	var mu sync.Mutex
	var all []*answer
	var wg sync.WaitGroup
	for _, token := range []string{anna, bert} {
		wg.Go(func() {
			a := s.send(token, "POST", path+"/resolve", act)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		})
	}
	wg.Wait()
	won, lost := all[0], all[1]
	if won.status != 200 {
		won, lost = lost, won
	}
	s.wants(won, 200, "the first")
	s.wants(lost, 409, "the second")
	if lost.at("code") != "refused" || lost.at("entry.code") != "stale" || lost.at("record.state") != "completed" ||
		fmt.Sprint(lost.at("record.revision")) != fmt.Sprint(won.at("entry.to.revision")) || lost.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("the second was told %s", lost.text)
	}
	entries, err := s.service.Audit(t.Context(), operator.AuditFilter{Ref: r.Ref})
	must(t, err)
	if len(entries) != 2 || entries[0].By == entries[1].By {
		t.Errorf("the audit has %+v, want both", entries)
	}
	now, err := s.service.Show(t.Context(), r.Ref)
	must(t, err)
	if now.Result == nil || string(now.Result.Body) != "paid" || now.Result.Header["Content-Type"][0] != "text/plain" {
		t.Errorf("the record has %+v", now.Result)
	}
	act["by"] = "somebody else"
	s.wants(s.send(anna, "POST", path+"/resolve", act), 400, "an action that names its author")
}

// An action that is sent again under its ID acts once, and is answered as before.
func TestActionsAreIdempotent(t *testing.T) { onStores(t, actionsAreIdempotent) }

func actionsAreIdempotent(t *testing.T, s *site) {
	t.Helper()
	r, path := s.record("k", retrysafe.StateUnknown)
	act := map[string]any{"id": "release-1", "revision": r.Revision, "why": "not there"}
	first := s.wants(s.send(anna, "POST", path+"/release", act), 200, "release")
	again := s.wants(s.send(anna, "POST", path+"/release", act), 200, "release again")
	if first.at("replayed") != nil || again.at("replayed") != true || fmt.Sprint(first.at("entry")) != fmt.Sprint(again.at("entry")) {
		t.Errorf("got %s and then %s", first.text, again.text)
	}
	if a := s.wants(s.send(bert, "POST", path+"/release", act), 409, "another person with this ID"); a.at("code") != "other-action" {
		t.Errorf("got %s", a.text)
	}
	act["id"] = "release-2"
	a := s.wants(s.send(anna, "POST", path+"/release", act), 409, "release what is not unknown")
	if a.at("entry.code") != "stale" {
		t.Errorf("got %s", a.text)
	}
	act["revision"] = a.at("record.revision")
	act["id"] = "release-3"
	if a = s.wants(s.send(anna, "POST", path+"/release", act), 409, "in the wrong state"); a.at("entry.code") != "state" {
		t.Errorf("got %s", a.text)
	}
}

// A browser does not act for another site, and no page frames an answer.
func TestOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	r, path := s.record("k", retrysafe.StateUnknown)
	act := map[string]any{"revision": r.Revision, "why": "because"}
	for _, h := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}} {
		if a := s.wants(s.send(anna, "POST", path+"/release", act, h[0], h[1]), 403, h[1]); a.at("code") != "cross-site" {
			t.Errorf("got %s", a.text)
		}
	}
	s.wants(s.send(anna, "POST", path+"/release", fmt.Sprintf(`{"revision":%d,"why":"because"}`, r.Revision), "Content-Type", "text/plain"), 415, "a form of another site")
	a := s.wants(s.send(anna, "GET", path, nil), 200, "show")
	if a.header.Get("X-Frame-Options") != "DENY" || a.header.Get("Cache-Control") != "no-store" || strings.Contains(a.header.Get("Content-Security-Policy"), "unsafe") ||
		!strings.Contains(a.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("the headers are %v", a.header)
	}
	s.wants(s.send(anna, "POST", path+"/release", act, "Sec-Fetch-Site", "same-origin"), 200, "this site")
}

// Requests that cannot be read change nothing, and say what is wrong.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := start(t)
	r, path := s.record("k", retrysafe.StateUnknown)
	full := fmt.Sprintf(`"revision":%d,"why":"because"`, r.Revision)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/keys?stat=unknown", "", 400}, {"GET", "/keys?state=gone", "", 400}, {"GET", "/keys?limit=0", "", 400}, {"GET", "/keys?limit=100000", "", 400},
		{"GET", "/keys?since=yesterday", "", 400}, {"GET", "/keys?after=%21", "", 400}, {"GET", "/keys?key=k", "", 400}, {"GET", "/keys?limit=1&limit=2", "", 400},
		{"GET", "/keys/%21", "", 404}, {"GET", "/keys/AXhu", "", 404}, {"GET", "/nothing", "", 404}, {"DELETE", path, "", 405}, {"POST", "/keys", "{}", 405},
		{"POST", path + "/release", "{", 400}, {"POST", path + "/release", "{" + full + "} {}", 400}, {"POST", path + "/release", "{" + full + `,"reason":"x"}`, 400},
		{"POST", path + "/release", `{"why":"because"}`, 400}, {"POST", path + "/release", fmt.Sprintf(`{"revision":%d}`, r.Revision), 400},
		{"POST", path + "/release", "{" + full + `,"answer":{"status":201}}`, 400}, {"POST", path + "/resolve", "{" + full + "}", 400},
		{"POST", path + "/resolve", "{" + full + `,"answer":{"status":99}}`, 400}, {"POST", path + "/resolve", "{" + full + `,"answer":{"status":200,"headers":{"Set-Cookie":["a=b"]}}}`, 400},
		{"POST", path + "/resolve", "{" + full + `,"answer":{"status":200,"body":"a","body_base64":"YQ=="}}`, 400},
		{"POST", path + "/resolve", "{" + full + `,"answer":{"status":201}}`, 400}, {"POST", path + "/resolve", "{" + full + `,"answer":{"status":201,"body":"a","no_body":true}}`, 400},
		{"POST", "/selections", `{"verb":"resolve","filter":{},"answer":{"status":200,"body":""}}`, 400},
		{"POST", path + "/release", "{" + full + `,"id":"` + strings.Repeat("x", 70_000) + `"}`, 413},
		{"POST", "/batches", `{"verb":"release","filter":{},"why":"because"}`, 400}, {"POST", "/batches", `{"verb":"release","filter":{},"at_most":5}`, 400},
		{"POST", "/batches", `{"verb":"forget","filter":{},"why":"because","at_most":5}`, 400}, {"POST", "/batches", `{"verb":"release","filter":{},"why":"because","selection":"none"}`, 409},
		{"POST", "/selections", `{"verb":"release","filter":{"states":["gone"]}}`, 400}, {"GET", "/batches/none", "", 404}, {"POST", "/reconcile", "{}", 501},
		{"GET", "/outbox/messages/x", "", 404}, {"GET", "/outbox/messages/7", "", 404}, {"POST", "/outbox/messages/7/drop", `{"revision":1,"why":"because"}`, 409},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		a := s.wants(s.send(anna, c.method, c.path, body), c.status, c.method+" "+c.path+" "+c.body[:min(80, len(c.body))])
		if a.header.Get("Content-Type") != "application/problem+json" || a.at("detail") == nil || fmt.Sprint(a.at("status")) != fmt.Sprint(c.status) {
			t.Errorf("%s %s: got %s", c.method, c.path, a.text)
		}
	}
	if now, err := s.service.Show(t.Context(), r.Ref); err != nil || now.Revision != r.Revision {
		t.Errorf("a bad request has changed the record: %v, %v", now.Revision, err)
	}
}

// ended waits for the end of a batch or a quarantine.
func (s *site) ended(path string) *answer {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		a := s.wants(s.send(reader, "GET", path, nil), 200, path)
		if a.at("state") != "running" {
			return a
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s does not end: %s", path, a.text)
		}
	}
}

// A batch changes exactly what its dry run has counted, in the server and under its ID.
func TestBatchRunsInTheServer(t *testing.T) { onStores(t, batchRunsInTheServer) }

func batchRunsInTheServer(t *testing.T, s *site) {
	t.Helper()
	const many = 50
	var first retrysafe.Record
	for i := range many {
		r, _ := s.record(fmt.Sprint("k", i), retrysafe.StateUnknown)
		if i == 0 {
			first = r
		}
	}
	b := map[string]any{"verb": "release", "filter": map[string]any{"operation": "POST /ch*"}}
	sel := s.wants(s.send(anna, "POST", "/selections", b), 200, "dry run")
	if fmt.Sprint(sel.at("count")) != fmt.Sprint(many) || len(sel.body["sample"].([]any)) != 10 {
		t.Fatalf("got %s", sel.text)
	}
	s.record("later", retrysafe.StateUnknown)
	if _, err := s.service.Redrive(t.Context(), operator.Action{By: "bert", Why: "again", Ref: first.Ref, Revision: first.Revision}); err != nil {
		t.Fatal(err)
	}
	b["id"], b["why"], b["selection"] = "batch-1", "the provider has none", sel.at("id")
	s.wants(s.send(bert, "POST", "/batches", b), 400, "the selection of another person")
	a := s.wants(s.send(anna, "POST", "/batches", b), 202, "begin")
	if a.at("id") != "batch-1" || a.at("by") != "anna" {
		t.Errorf("got %s", a.text)
	}
	a = s.ended("/batches/batch-1")
	if a.at("state") != "done" || fmt.Sprintf("%v %v", a.at("counts.done"), a.at("counts.changed")) != fmt.Sprintf("%d 1", many-1) {
		t.Errorf("got %s, want all but the one that has changed", a.text)
	}
	if now, err := s.service.Show(t.Context(), retrysafe.Ref{Scope: "tenant", Key: "later"}); err != nil || now.State != retrysafe.StateUnknown {
		t.Errorf("a record that was not counted is %v, %v", now.State, err)
	}
	s.wants(s.send(anna, "POST", "/batches", b), 202, "again")
	if a = s.ended("/batches/batch-1"); a.at("replayed") != true {
		t.Errorf("the same batch again: %s", a.text)
	}
	other := map[string]any{"id": "batch-1", "why": "other", "verb": "release", "filter": map[string]any{}, "at_most": 1000}
	s.wants(s.send(anna, "POST", "/batches", other), 202, "another batch under the ID")
	if a = s.ended("/batches/batch-1"); a.at("state") != "interrupted" || a.at("problem.code") != "other-action" {
		t.Errorf("another batch under the same ID: %s", a.text)
	}
	other["id"], other["at_most"] = "batch-2", 1
	if a = s.wants(s.send(anna, "POST", "/batches", other), 409, "more than at_most"); a.at("code") != "too-many" {
		t.Errorf("got %s", a.text)
	}
	// A process that did not run it knows it from the audit.
	h, err := console.New(console.Options{Service: s.service, Tokens: []console.Token{{Name: "anna", Role: "act", Secret: anna}}})
	must(t, err)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/batches/batch-1", nil)
	r.Header.Set("Authorization", "Bearer "+anna)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"state":"done"`) {
		t.Errorf("another process says %d %s", w.Code, w.Body)
	}
}

// Close stops a batch, and the same request goes on with it in another process.
func TestCloseStopsBatches(t *testing.T) {
	t.Parallel()
	s := start(t)
	const many = 100
	for i := range many {
		s.record(fmt.Sprint("k", i), retrysafe.StateUnknown)
	}
	// What was released is not found again when it goes on: each record counts once, however
	// far the batch came before Close.
	b := map[string]any{"id": "slow", "why": "because", "verb": "release", "filter": map[string]any{}, "at_most": many, "rate": 20}
	s.wants(s.send(anna, "POST", "/batches", b), 202, "begin")
	must(t, s.handler.Close(t.Context()))
	a := s.ended("/batches/slow")
	if a.at("state") != "interrupted" {
		t.Fatalf("got %s", a.text)
	}
	s.wants(s.send(anna, "POST", "/batches", b), 503, "a batch after Close")
	other := start(t, func(o *console.Options) { o.Service = s.service })
	delete(b, "rate")
	other.wants(other.send(anna, "POST", "/batches", b), 202, "go on")
	if a = other.ended("/batches/slow"); a.at("state") != "done" || fmt.Sprint(a.at("counts.done")) != fmt.Sprint(many) {
		t.Errorf("got %s, want all", a.text)
	}
}

// A quarantine runs in the server, too.
func TestQuarantineRunsInTheServer(t *testing.T) { onStores(t, quarantineRunsInTheServer) }

func quarantineRunsInTheServer(t *testing.T, s *site) {
	t.Helper()
	r, _ := s.record("k", retrysafe.StateRetryable)
	if a := s.wants(s.send(reader, "GET", "/survey", nil), 200, "survey"); fmt.Sprint(a.at("quarantined")) != "1" {
		t.Errorf("got %s", a.text)
	}
	s.wants(s.send(anna, "POST", "/quarantines", map[string]any{"id": "restore", "why": "a backup was restored"}), 202, "quarantine")
	if a := s.ended("/quarantines/restore"); fmt.Sprint(a.at("report.quarantined")) != "1" || a.at("entry.by") != "anna" {
		t.Errorf("got %s", a.text)
	}
	if now, err := s.service.Show(t.Context(), r.Ref); err != nil || now.State != retrysafe.StateUnknown {
		t.Errorf("the record is %v, %v", now.State, err)
	}
}

// Scopes and keys are any bytes, and numbers are exact.
func TestAnyBytesAndExactNumbers(t *testing.T) { onStores(t, anyBytesAndExactNumbers) }

func anyBytesAndExactNumbers(t *testing.T, s *site) {
	t.Helper()
	w := retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "t\xfe", Key: "k\xff\x00\n"}, Operation: "o", Fingerprint: retrysafe.Fingerprint{Alg: 1}, Owner: retrysafe.Owner{1},
		State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1, Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseQuarantine, Retain: time.Hour,
	}}
	made, err := s.store.Create(t.Context(), w)
	must(t, err)
	a := s.wants(s.send(reader, "GET", "/keys?scope=t%FE&key=k%FF%00%0A", nil), 200, "look up")
	list, _ := a.body["records"].([]any)
	if len(list) != 1 {
		t.Fatalf("got %s", a.text)
	}
	one, _ := list[0].(map[string]any)
	if fmt.Sprint(one["revision"]) != fmt.Sprint(made.Revision) || one["key_base64"] != "a/8ACg==" || one["scope_base64"] != "dP4=" {
		t.Errorf("got %v", one)
	}
	path := fmt.Sprint("/keys/", one["ref"])
	if a = s.wants(s.send(reader, "GET", path, nil), 200, "show"); a.at("ref") != one["ref"] {
		t.Errorf("got %s", a.text)
	}
	a = s.wants(s.send(anna, "POST", path+"/release", map[string]any{"revision": made.Revision, "why": "because"}), 409, "release")
	if a.at("entry.code") != "live" {
		t.Errorf("got %s", a.text)
	}
	a = s.wants(s.send(reader, "GET", "/audit?ref="+fmt.Sprint(one["ref"]), nil), 200, "audit")
	if entries, _ := a.body["entries"].([]any); len(entries) != 1 {
		t.Errorf("got %s", a.text)
	}
}

// Pages go on where the one before ended.
func TestListIsPaged(t *testing.T) { onStores(t, listIsPaged) }

func listIsPaged(t *testing.T, s *site) {
	t.Helper()
	for i := range 7 {
		s.record(fmt.Sprint("k", i), retrysafe.StateUnknown)
	}
	seen, after := map[string]bool{}, ""
	for pages := 1; ; pages++ {
		a := s.wants(s.send(reader, "GET", "/keys?state=unknown&limit=3"+after, nil), 200, "page")
		list, _ := a.body["records"].([]any)
		for _, r := range list {
			seen[fmt.Sprint(r.(map[string]any)["key"])] = true
		}
		if a.at("next") == nil {
			if pages != 3 || len(seen) != 7 {
				t.Errorf("%d pages with %d records, want 3 with 7", pages, len(seen))
			}
			break
		}
		after = "&after=" + fmt.Sprint(a.at("next"))
	}
	a := s.wants(s.send(reader, "GET", "/groups", nil), 200, "groups")
	groups, _ := a.body["groups"].([]any)
	if len(groups) != 1 || fmt.Sprint(groups[0].(map[string]any)["count"]) != "7" {
		t.Errorf("got %s", a.text)
	}
}

// Messages are shown without their payloads, which are revealed with an entry in the
// audit.
func TestMessages(t *testing.T) { onStores(t, messages) }

func messages(t *testing.T, s *site) {
	t.Helper()
	ctx := t.Context()
	s.enqueue(outbox.Message{Topic: "mail", Key: "key-1", Payload: []byte("the payload with a secret"), Header: map[string]string{"X-Secret": "of-the-header"}})
	box := s.box
	held, err := box.Lease(ctx, retrysafe.Owner{9}, time.Minute)
	must(t, err)
	due, err := box.Due(ctx, held.Shards, 10)
	must(t, err)
	_, err = box.Ack(ctx, []outbox.Ack{{ID: due[0].ID, Shard: due[0].Shard, Kind: outbox.AckDead, Tries: 1, Why: "refused"}})
	must(t, err)
	a := s.wants(s.send(reader, "GET", "/outbox/messages", nil), 200, "list")
	if strings.Contains(a.text, "a secret") || strings.Contains(a.text, "of-the-header") || !strings.Contains(a.text, `"payload_bytes":25`) {
		t.Errorf("a reader gets %s", a.text)
	}
	path := fmt.Sprint("/outbox/messages/", due[0].ID)
	a = s.wants(s.send(anna, "GET", path, nil), 200, "show")
	revision := a.at("revision")
	if strings.Contains(a.text, "a secret") || a.at("header.X-Secret") != "of-the-header" || a.at("dead") != true {
		t.Errorf("got %s", a.text)
	}
	a = s.wants(s.send(anna, "POST", path+"/reveal", map[string]any{"revision": revision, "why": "look"}), 200, "reveal")
	if a.at("message.payload") != "the payload with a secret" || a.at("entry.verb") != "reveal message" {
		t.Errorf("got %s", a.text)
	}
	if a = s.wants(s.send(reader, "GET", "/outbox/depth", nil), 200, "depth"); fmt.Sprint(a.at("dead")) != "1" {
		t.Errorf("got %s", a.text)
	}
	s.wants(s.send(reader, "GET", "/outbox/receipts", nil), 200, "receipts")
	s.wants(s.send(anna, "POST", path+"/drop", map[string]any{"revision": revision, "why": "sent by hand"}), 200, "drop")
	s.wants(s.send(anna, "GET", path, nil), 404, "show what is gone")
	none := start(t, func(o *console.Options) { o.Outbox = nil })
	none.wants(none.send(anna, "GET", "/outbox/messages", nil), 501, "without an outbox")
}
