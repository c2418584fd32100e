package conform_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/conform"
)

// What a run sends is what its plan has announced, and never more of it.
func TestRunSendsNoMoreThanItsPlan(t *testing.T) {
	t.Parallel()
	for _, flaw := range []string{"", "check then insert", "no fingerprint", "stuck after a crash"} {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			a := newZooAPI(flaw)
			var arrived atomic.Int64
			next := a.handler()
			o := everything(t, a.shop, serveZoo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived.Add(1)
				next.ServeHTTP(w, r)
			})))
			o.RunID, o.Patience = "fixed", time.Second
			plan, err := conform.Plan(o)
			must(t, err)
			if n := arrived.Load(); n > 0 {
				t.Errorf("a plan has sent %d requests", n)
			}
			most := map[string]int{}
			for _, p := range plan {
				most[p.Check] += p.Times
				if !strings.Contains(p.Sent, "HTTP/1.1\nHost: ") {
					t.Errorf("%s %s is not shown as it is sent: %q", p.Check, p.Step, p.Sent)
				}
				if strings.Contains(p.Sent, "Bearer") {
					t.Errorf("%s %s shows credentials", p.Check, p.Step)
				}
			}
			r, err := conform.Run(t.Context(), o)
			must(t, err)
			sent := 0
			for _, result := range r.Results {
				sent += result.Requests
				if result.Requests > most[result.Check] {
					t.Errorf("%s sent %d requests, and announced %d", result.Check, result.Requests, most[result.Check])
				}
			}
			// One request of a run has a byte in it that net/http refuses before any handler.
			if n := int(arrived.Load()); n > sent || n < sent-1 {
				t.Errorf("the report counts %d requests, and %d arrived", sent, n)
			}
		})
	}
}

func TestKeysAreMarked(t *testing.T) {
	t.Parallel()
	house := *conform.IETF
	house.UUID = true
	for want, profile := range map[string]*conform.Profile{`Idempotency-Key: "conform-fixed-replay-`: conform.IETF, `Idempotency-Key: "c0f0c0f0-`: &house} {
		plan, err := conform.Plan(&conform.Options{URL: "http://127.0.0.1:1", RunID: "fixed", Profile: profile, Request: conform.Request{Path: "/x", Body: []byte(`{}`)}})
		must(t, err)
		i := slices.IndexFunc(plan, func(p conform.Planned) bool { return p.Check == "replay/bytes" })
		if i < 0 || !strings.Contains(plan[i].Sent, want) {
			t.Errorf("no key begins with %s: %q", want, plan[i].Sent)
		}
	}
}

func TestWrongOptionsSendNothing(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	url := serveZoo(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = quiet
	t.Cleanup(secure.Close)
	good := conform.Request{Path: "/payments", Body: []byte(`{"amount": 1}`)}
	off := *conform.IETF
	off.Mismatch = []int{200}
	odd := *conform.IETF
	odd.Severity = map[string]string{"replay/bites": "minor"}
	for want, o := range map[string]*conform.Options{
		"a URL of http or https":             {Request: good},
		"it contains a password":             {URL: "http://u:p@127.0.0.1", Request: good},
		"not a JSON document":                {URL: url, Request: conform.Request{Path: "/payments", Body: []byte(`{"amount"`)}},
		"something follows the document":     {URL: url, Request: conform.Request{Path: "/payments", Body: []byte(`{} {}`)}},
		"a safe method needs no key":         {URL: url, Request: conform.Request{Method: "GET", Path: "/payments"}},
		"keys are made here":                 {URL: url, Request: conform.Request{Path: "/payments", Header: http.Header{"Idempotency-Key": {"k"}}}},
		"it belongs to the connection":       {URL: url, Request: conform.Request{Path: "/payments", Header: http.Header{"Content-Length": {"7"}}}},
		"line break":                         {URL: url, Request: conform.Request{Path: "/payments", Header: http.Header{"X": {"a\r\nb"}}}},
		"begins with a slash":                {URL: url, Request: conform.Request{Path: "payments"}},
		"it is the same as the body":         {URL: url, Request: good, OtherBody: good.Body},
		"there is no check \"replays\"":      {URL: url, Request: good, Only: []string{"replays"}},
		"belong together":                    {URL: url, Request: good, StoreDown: func(context.Context) error { return nil }},
		"200 is not a refusal":               {URL: url, Request: good, Profile: &off},
		"there is no such check":             {URL: url, Request: good, Profile: &odd},
		"not negative":                       {URL: url, Request: good, Rate: -1},
		"1 to 16 letters and digits":         {URL: url, Request: good, RunID: "a b"},
		"a JSON pointer begins with a slash": {URL: url, Request: good, Effects: conform.Effects{Pointer: "id"}},
		"it is not a URL of http":            {URL: url, Request: good, Effects: conform.Effects{URL: "ledger"}},
		"connection refused":                 {URL: "http://127.0.0.1:1", Request: good},
		"certificate":                        {URL: secure.URL, Request: good},
		"nor in a private network":           {URL: "http://192.0.2.1", Request: good},
		"(192.0.2.2) is neither on this":     {URL: url, Request: good, Effects: conform.Effects{URL: "http://192.0.2.2/"}},
		"listen for webhooks":                {URL: url, Request: good, Webhooks: "192.0.2.1:1"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, err := conform.Run(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, want)
			}
		})
	}
	if n := arrived.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
	if _, err := conform.Run(t.Context(), nil); err == nil {
		t.Error("no options are accepted")
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := serveZoo(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	var first atomic.Int64
	url := serveZoo(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		first.Add(1)
		w.Header().Set("Location", other+"/payments")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	_, err := conform.Run(t.Context(), &conform.Options{URL: url, Rate: 1e6, Request: conform.Request{Path: "/payments"}})
	if err == nil || !strings.Contains(err.Error(), "redirects to another host") {
		t.Errorf("got %v", err)
	}
	if first.Load() != 1 || elsewhere.Load() != 0 {
		t.Errorf("%d requests were sent, and %d to the other host", first.Load(), elsewhere.Load())
	}
}

// An API whose operation does not succeed is not judged.
func TestRequestThatDoesNotSucceedIsNotJudged(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	url := serveZoo(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	r, err := conform.Run(t.Context(), &conform.Options{URL: url, Rate: 1e6, Request: conform.Request{Path: "/nowhere", Body: []byte(`{"a": 1}`)}})
	must(t, err)
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "base/answer: a request under a new key was answered 404") {
		t.Errorf("got %v", err)
	}
	if bad := verdicts(r, "holds", "violated", "not optimal"); len(bad) > 0 || n.Load() != 1 {
		t.Errorf("judged: %q, by %d requests", bad, n.Load())
	}
}

// An API that ignores keys and answers everything alike cannot be told from a good one by
// its answers, and the verifier does not pretend that it can.
func TestAnswersThatAreAllAlikeProveNothing(t *testing.T) {
	t.Parallel()
	url := serveZoo(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"ok": true}`) }))
	o := &conform.Options{URL: url, Rate: 1e6, Request: conform.Request{Path: "/", Body: []byte(`{"a": 1}`)}}
	r, err := conform.Run(t.Context(), o)
	must(t, err)
	for _, id := range []string{"replay/effect", "race/effects"} {
		if i := slices.IndexFunc(r.Results, func(one conform.Result) bool { return one.Check == id }); r.Results[i].Verdict != "not tested" {
			t.Errorf("%s is said to be: %s", id, r.Results[i].Verdict)
		}
	}
	if got := found(r); !slices.Contains(got, "mismatch/refused") || !slices.Contains(got, "key/missing") {
		t.Errorf("found only %q", got)
	}
}

func TestInterruptedRunReturns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := serveZoo(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	_, err := conform.Run(ctx, &conform.Options{URL: url, Request: conform.Request{Path: "/"}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Effects can be counted in three ways.
func TestEffectsAreCounted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *conform.Options, url string){
		"by a list for each key": func(*conform.Options, string) {},
		"by a number of all":     func(o *conform.Options, url string) { o.Effects = conform.Effects{URL: url + "/total"} },
		"by a header of all": func(o *conform.Options, url string) {
			o.Effects = conform.Effects{URL: url + "/total", Header: "X-Total"}
		},
		"by a name in answers":   func(o *conform.Options, _ string) { o.Effects = conform.Effects{Pointer: "/id"} },
		"by a header of answers": func(o *conform.Options, _ string) { o.Effects = conform.Effects{Header: "Etag"} },
	} {
		for flaw, want := range map[string][]string{"": nil, "check then insert": {"race/effects"}, "hash in the key": {"mismatch/refused"}} {
			t.Run(name+" "+flaw, func(t *testing.T) {
				t.Parallel()
				a := newZooAPI(flaw)
				mux := http.NewServeMux()
				mux.Handle("/", a.handler())
				mux.HandleFunc("GET /total", func(w http.ResponseWriter, _ *http.Request) {
					a.mu.Lock()
					defer a.mu.Unlock()
					w.Header().Set("X-Total", fmt.Sprint(a.number))
					fmt.Fprintln(w, a.number)
				})
				url := serveZoo(t, mux)
				o := everything(t, a.shop, url)
				o.Only = []string{"replay", "race", "mismatch", "inflight"}
				change(o, url)
				r, err := conform.Run(t.Context(), o)
				must(t, err)
				if got := found(r); !slices.Equal(got, want) {
					t.Errorf("found %q, want %q\n%s", got, want, text(t, r))
				}
			})
		}
	}
}

// A check stands behind those that it needs, and its identity is its own.
func TestChecksAreInOrder(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, c := range conform.Checks() {
		for _, id := range c.Needs {
			if !slices.Contains(seen, id) {
				t.Errorf("%s needs %s, which does not stand before it", c.Check, id)
			}
		}
		if slices.Contains(seen, c.Check) {
			t.Errorf("there are two checks %s", c.Check)
		}
		if c.Clause == "" || !strings.HasSuffix(c.Requirement, ".") || !slices.Contains([]string{"critical", "major", "minor", "note"}, c.Severity) {
			t.Errorf("%s lacks a clause, a sentence or a severity", c.Check)
		}
		seen = append(seen, c.Check)
	}
}

// An API that refuses the first request of a check, as any may do at times, has shown
// nothing about its replays.
func TestRefusedFirstRequestIsNoViolation(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"effect", "status", "bytes", "headers", "cookies", "marker", "expiry"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			a := newZooAPI("")
			var seen sync.Map
			o := everything(t, a.shop, serveZoo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key := r.Header.Get("Idempotency-Key")
				if _, again := seen.LoadOrStore(key, true); !again && strings.Contains(key, "-replay-"+id) {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				a.handler().ServeHTTP(w, r)
			})))
			o.Only = []string{"replay"}
			r, err := conform.Run(t.Context(), o)
			must(t, err)
			if bad := found(r); len(bad) > 0 {
				t.Errorf("found %q\n%s", bad, text(t, r))
			}
			if failed := verdicts(r, "set-up failed"); len(failed) != 1 || !strings.HasPrefix(failed[0], "replay/"+id+": the first request was answered 503") {
				t.Errorf("set-up failed: %q", failed)
			}
		})
	}
}

// Rules of a house change what is asked for.
func TestSeverityOfAProfile(t *testing.T) {
	t.Parallel()
	a := newZooAPI("no marker")
	o := everything(t, a.shop, serveZoo(t, a.handler()))
	house := *conform.IETF
	house.Severity = map[string]string{"replay/marker": "critical", "replay/cookies": "off"}
	o.Profile, o.Only = &house, []string{"replay"}
	r, err := conform.Run(t.Context(), o)
	must(t, err)
	if !r.Fails("critical") || !slices.Equal(found(r), []string{"replay/marker"}) {
		t.Errorf("a rule of the house is not followed\n%s", text(t, r))
	}
	if off := verdicts(r, "not tested"); !slices.Equal(off, []string{"replay/cookies: the profile switches it off"}) {
		t.Errorf("not tested: %q", off)
	}
}

// Over TLS the same is found.
func TestRunOverTLS(t *testing.T) {
	t.Parallel()
	a := newZooAPI("written anew")
	s := httptest.NewUnstartedServer(a.handler())
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	o := everything(t, a.shop, s.URL)
	o.TLS, o.Only = &tls.Config{RootCAs: roots}, []string{"replay", "disconnect", "race"}
	r, err := conform.Run(t.Context(), o)
	must(t, err)
	if got := found(r); !slices.Equal(got, []string{"replay/bytes"}) {
		t.Errorf("found %q\n%s", got, text(t, r))
	}
}

// A form is changed in its first number.
func TestFormIsVerifiedToo(t *testing.T) {
	t.Parallel()
	plan, err := conform.Plan(&conform.Options{URL: "http://127.0.0.1:1", Only: []string{"mismatch/status"}, Request: conform.Request{
		Path: "/charges", Body: []byte("currency=eur&amount=1200"), Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
	}})
	must(t, err)
	if !slices.ContainsFunc(plan, func(p conform.Planned) bool { return strings.HasSuffix(p.Sent, "\n\ncurrency=eur&amount=1201") }) {
		t.Errorf("no other form is planned: %v", plan)
	}
}

// An API that limits its callers is not blamed for it.
func TestLimitsAreNoFlaws(t *testing.T) {
	t.Parallel()
	a := newZooAPI("")
	var n atomic.Int64
	next := a.handler()
	o := everything(t, a.shop, serveZoo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})))
	o.Only, o.Slow = []string{"base", "replay", "key", "mismatch", "scope", "fingerprint"}, nil
	r, err := conform.Run(t.Context(), o)
	must(t, err)
	if got := found(r); len(got) > 0 {
		t.Errorf("found %q\n%s", got, text(t, r))
	}
	if bad := verdicts(r, "set-up failed"); len(bad) == 0 {
		t.Errorf("no check met the limit\n%s", text(t, r))
	}
}
