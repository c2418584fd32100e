package httpresolver_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor/httpresolver"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at is when the records of these tests were read.
var at = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// unknown returns a record that has been unknown for some time.
func unknown(since time.Duration) retrysafe.Record {
	return retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "order/4711 ?&ü"}, Operation: "POST /payments", ProviderRef: "ch_1", State: retrysafe.StateUnknown,
		Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1, UpdatedAt: at.Add(-since), ReadAt: at, Request: []byte(`{"amount": 100, "to": {"iban": "DE\"1"}}`),
	}
}

func opts() *httpresolver.Options {
	return &httpresolver.Options{
		Name: "stripe", Namespace: "n", Call: "upstream", Deadline: time.Hour,
		Body: func(r retrysafe.Record) ([]byte, bool) { return r.Request, r.Request != nil },
	}
}

// rules are some that mean something.
func rules() []httpresolver.Rule {
	return []httpresolver.Rule{
		{Status: []string{"200"}, When: map[string][]string{"/status": {"paid", "settled"}}, Then: "happened", Answer: &httpresolver.Answer{Status: 201, Body: `{"id":"{/id}","amount":{/amount},"key":"{key}"}`}},
		{Status: []string{"200"}, When: map[string][]string{"/status": {"refused"}}, Then: "declined", Answer: &httpresolver.Answer{Status: 402, BodyFrom: "/error", Header: map[string]string{"X-Id": "{/id}"}}},
		{Status: []string{"200"}, When: map[string][]string{"/status": {"open"}}, Then: "pending"},
		{Status: []string{"200"}, Present: []string{"/whole"}, Then: "happened", Answer: &httpresolver.Answer{Status: 200, BodyFrom: "response"}},
		{Status: []string{"200"}, Absent: []string{"/data/0"}, Then: "not_happened"},
		{Status: []string{"404"}, When: map[string][]string{"/code": {"missing"}}, Then: "not_happened"},
		{Status: []string{"410"}, Then: "tombstoned"},
		{Status: []string{"4xx"}, When: map[string][]string{"/code": {"later"}}, Then: "unknown"},
	}
}

// What a reply means is what the first rule says that matches it. What no rule matches is
// an error, and never evidence.
func TestRepliesMeanWhatTheRulesSay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		body    string
		finding retrysafe.Finding
		proof   retrysafe.Proof
		result  string // of the answer
		kind    string
		err     string
	}{
		"happened":                     {status: 200, body: `{"status":"paid","id":"ch_\"2","amount":12.50}`, finding: retrysafe.FindingHappened, result: `201 {"id":"ch_\"2","amount":12.50,"key":"order/4711 ?&ü"}`, kind: "application/json"},
		"another word for it":          {status: 200, body: `{"status":"settled","id":"ch_2","amount":1}`, finding: retrysafe.FindingHappened, result: `201 {"id":"ch_2","amount":1,"key":"order/4711 ?&ü"}`, kind: "application/json"},
		"declined":                     {status: 200, body: `{"status":"refused","id":"ch_2","error":{"b":1,"a":"<"}}`, finding: retrysafe.FindingDeclined, result: `402 {"a":"<","b":1}`, kind: "application/json"},
		"pending":                      {status: 200, body: `{"status":"open"}`, finding: retrysafe.FindingUnknown},
		"the provider's own":           {status: 200, body: `{"whole": true }`, finding: retrysafe.FindingHappened, result: `200 {"whole": true }`, kind: "text/odd"},
		"an empty list":                {status: 200, body: `{"data":[]}`, finding: retrysafe.FindingNotHappened, proof: retrysafe.ProofWaited},
		"no list at all":               {status: 200, body: `{}`, err: "no rule matches the reply: its status is 200"},
		"missing":                      {status: 404, body: `{"code":"missing"}`, finding: retrysafe.FindingNotHappened, proof: retrysafe.ProofWaited},
		"the wrong address":            {status: 404, body: `<html>`, err: "its status is 404, and its body is not JSON"},
		"gone":                         {status: 410, finding: retrysafe.FindingNotHappened, proof: retrysafe.ProofTombstone},
		"a class of statuses":          {status: 429, body: `{"code":"later"}`, finding: retrysafe.FindingUnknown},
		"a status without a rule":      {status: 500, body: `{"status":"paid"}`, err: "its status is 500"},
		"a redirect":                   {status: 302, err: "its status is 302"},
		"two members of one name":      {status: 200, body: `{"status":"paid","status":"open"}`, err: "its body is not JSON"},
		"a value of the answer missed": {status: 200, body: `{"status":"paid","amount":1}`, err: "the answer of rule 1: there is no {/id}"},
		"a part of the answer missed":  {status: 200, body: `{"status":"refused","id":"a"}`, err: "the answer of rule 2: there is nothing at /error"},
		"an answer that is no JSON":    {status: 200, body: `{"status":"paid","id":"1","amount":"1, 2"}`, err: "the answer of rule 1: with its values it is not JSON"},
		"a header that cannot be":      {status: 200, body: `{"status":"refused","id":"a\nb","error":1}`, err: "header X-Id: there is no {/id}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer token" || r.Header.Get("X-Account") != "acct" || r.Method != http.MethodGet {
					t.Errorf("%s with %v", r.Method, r.Header)
				}
				w.Header().Set("Content-Type", "text/odd")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			o := opts()
			o.Token = "token"
			r, err := httpresolver.NewLookup(httpresolver.Lookup{URL: server.URL + "/charges/{key}", Header: map[string]string{"X-Account": "acct"}, Rules: rules(), ProviderRef: "/id"}, o)
			must(t, err)
			v, err := r.Resolve(t.Context(), unknown(2*time.Hour))
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) || v.Finding != retrysafe.FindingUnknown {
					t.Errorf("got %+v, %v", v, err)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			got := ""
			if v.Result.Status != 0 {
				got = strconv.Itoa(v.Result.Status) + " " + string(v.Result.Body)
			}
			if v.Finding != c.finding || v.Proof != c.proof || got != c.result || v.By != "resolver stripe" || v.Text == "" {
				t.Errorf("got %+v and the answer %s", v, got)
			}
			if c.kind != "" && (len(v.Result.Header["Content-Type"]) != 1 || v.Result.Header["Content-Type"][0] != c.kind) {
				t.Errorf("the answer has %v", v.Result.Header)
			}
			if strings.Contains(c.body, `"ch_2"`) && (v.ProviderRef != "ch_2" || !strings.HasSuffix(v.Text, ", ch_2")) {
				t.Errorf("the provider's name is %q, and the evidence %q", v.ProviderRef, v.Text)
			}
		})
	}
}

// Before the deadline "it did not happen" counts for nothing, and without one it is no
// proof.
func TestNotHappenedCountsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	askOf := func(deadline time.Duration, rec retrysafe.Record) retrysafe.Evidence {
		r, err := httpresolver.NewLookup(httpresolver.Lookup{URL: server.URL, Rules: []httpresolver.Rule{{Status: []string{"404"}, Then: "not_happened"}}}, &httpresolver.Options{Deadline: deadline})
		must(t, err)
		v, err := r.Resolve(t.Context(), rec)
		must(t, err)
		return v
	}
	ask := func(deadline, since time.Duration) retrysafe.Evidence { return askOf(deadline, unknown(since)) }
	if v := ask(time.Hour, time.Hour-1); v.Finding != retrysafe.FindingUnknown || !strings.Contains(v.Text, "unknown for 1h0m0s") {
		t.Errorf("a moment before: %+v", v)
	}
	if v := ask(time.Hour, time.Hour); v.Finding != retrysafe.FindingNotHappened || v.Text != "status 404, rule 1" || v.Proof != retrysafe.ProofWaited {
		t.Errorf("at the deadline: %+v", v)
	}
	rec := unknown(time.Hour) // a note since then does not begin the time anew
	rec.Inquiry.Notes = []retrysafe.Note{{At: rec.UpdatedAt, State: retrysafe.StateUnknown, Text: "asked"}}
	rec.Inquiry.Tries, rec.UpdatedAt = 1, at
	if v := askOf(time.Hour, rec); v.Finding != retrysafe.FindingNotHappened || v.Proof != retrysafe.ProofWaited {
		t.Errorf("at the deadline, of a record written since: %+v", v)
	}
	if v := ask(0, time.Hour); v.Finding != retrysafe.FindingNotHappened || v.Proof != retrysafe.ProofNone {
		t.Errorf("without one: %+v", v)
	}
}

// Each value is escaped for its place: no key can make another URL or another document of
// the question.
func TestValuesAreEscapedForTheirPlace(t *testing.T) {
	t.Parallel()
	var uri, body string
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		uri, body = r.RequestURI, string(text)
		asked++
	}))
	defer server.Close()
	ask := func(l httpresolver.Lookup, rec retrysafe.Record) (retrysafe.Evidence, error) {
		l.URL = server.URL + l.URL
		l.Rules = []httpresolver.Rule{{Status: []string{"200"}, Then: "pending"}}
		r, err := httpresolver.NewLookup(l, opts())
		must(t, err)
		return r.Resolve(t.Context(), rec)
	}
	rec := unknown(0)
	_, err := ask(httpresolver.Lookup{URL: "/a/{key}/{key_hash}?k={key}&d={downstream_key}&p={provider_ref}&o={operation}&s={scope}&i={request:/to/iban}&a={request:/amount}"}, rec)
	must(t, err)
	down := retrysafe.DownstreamKey("n", rec.Ref, "upstream")
	if want := "/a/order%2F4711%20%3F&%C3%BC/" + retrysafe.HashKey(rec.Key) + "?k=order%2F4711+%3F%26%C3%BC&d=" + down + "&p=ch_1&o=POST+%2Fpayments&s=tenant&i=DE%221&a=100"; uri != want {
		t.Errorf("asked\n%s, want\n%s", uri, want)
	}
	_, err = ask(httpresolver.Lookup{Method: "POST", URL: "/search", Body: `{"reference": "{request:/to/iban}", "nested": {"n": {request:/amount}}}`}, rec)
	must(t, err)
	if want := `{"reference": "DE\"1", "nested": {"n": 100}}`; body != want {
		t.Errorf("asked %s, want %s", body, want)
	}
	_, err = ask(httpresolver.Lookup{Method: "POST", URL: "/search", Body: `reference={key}&x=1`, Header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}, rec)
	must(t, err)
	if want := `reference=order%2F4711+%3F%26%C3%BC&x=1`; body != want {
		t.Errorf("asked %s, want %s", body, want)
	}

	_, err = ask(httpresolver.Lookup{URL: "/a/./b"}, rec) // as it is written: no value stands there
	must(t, err)
	if uri != "/a/./b" {
		t.Errorf("asked %s", uri)
	}

	asked = 0
	for name, c := range map[string]struct {
		l   httpresolver.Lookup
		rec func(*retrysafe.Record)
	}{
		"no name at the provider":    {httpresolver.Lookup{URL: "/{provider_ref}"}, func(r *retrysafe.Record) { r.ProviderRef = "" }},
		"no such field":              {httpresolver.Lookup{URL: "/{request:/to/bic}"}, func(*retrysafe.Record) {}},
		"a field that is an object":  {httpresolver.Lookup{URL: "/{request:/to}"}, func(*retrysafe.Record) {}},
		"no request":                 {httpresolver.Lookup{URL: "/{request:/amount}"}, func(r *retrysafe.Record) { r.Request = nil }},
		"a request that is not JSON": {httpresolver.Lookup{URL: "/{request:/amount}"}, func(r *retrysafe.Record) { r.Request = []byte("a=b") }},
		"a key that goes up":         {httpresolver.Lookup{URL: "/a/{key}"}, func(r *retrysafe.Record) { r.Key = ".." }},
		"a key that goes nowhere":    {httpresolver.Lookup{URL: "/a/{key}/b"}, func(r *retrysafe.Record) { r.Key = "." }},
		"half of it":                 {httpresolver.Lookup{URL: "/a/.{key}/b"}, func(r *retrysafe.Record) { r.Key = "." }},
		"a key that is no text":      {httpresolver.Lookup{Method: "POST", URL: "/a", Body: `"{key}"`}, func(r *retrysafe.Record) { r.Key = "\xff" }},
	} {
		rec := unknown(0)
		c.rec(&rec)
		if v, err := ask(c.l, rec); err != nil || v.Finding != retrysafe.FindingUnknown || !strings.Contains(v.Text, "it cannot be asked") || v.By != "resolver stripe" || asked != 0 {
			t.Errorf("%s: %+v, %v, asked %d times", name, v, err, asked)
			asked = 0
		}
	}
}

// What cannot work is refused, with its place and what to write instead.
func TestLookupsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	ok := httpresolver.Lookup{URL: "https://api.example.com/{key}", Rules: []httpresolver.Rule{{Status: []string{"200"}, Then: "pending"}}}
	rule := func(r httpresolver.Rule) httpresolver.Lookup { l := ok; l.Rules = []httpresolver.Rule{r}; return l }
	answer := func(a httpresolver.Answer) httpresolver.Lookup {
		return rule(httpresolver.Rule{Status: []string{"200"}, Then: "happened", Answer: &a})
	}
	with := func(change func(*httpresolver.Lookup)) httpresolver.Lookup { l := ok; change(&l); return l }
	for want, l := range map[string]httpresolver.Lookup{
		`url: it is not a URL of http or https`:                    with(func(l *httpresolver.Lookup) { l.URL = "/charges/{key}" }),
		`url: it is not https`:                                     with(func(l *httpresolver.Lookup) { l.URL = "http://api.example.com/" }),
		`url: it contains a password`:                              with(func(l *httpresolver.Lookup) { l.URL = "https://u:p@api.example.com/" }),
		`url: there is no placeholder {kye}; did you mean {key}?`:  with(func(l *httpresolver.Lookup) { l.URL += "/{kye}" }),
		`url: there is no placeholder {/id}; there are {key}`:      with(func(l *httpresolver.Lookup) { l.URL += "/{/id}" }),
		`url: {request} needs a JSON pointer, as in {request:/id}`: with(func(l *httpresolver.Lookup) { l.URL += "/{request}" }),
		`url: {key:/id} takes no pointer: write {key}`:             with(func(l *httpresolver.Lookup) { l.URL += "/{key:/id}" }),
		`url: "id" is not a JSON pointer`:                          with(func(l *httpresolver.Lookup) { l.URL += "/{request:id}" }),
		`url: there is a brace that belongs to no placeholder`:     with(func(l *httpresolver.Lookup) { l.URL += "/{Key}" }),
		`url: there is a fragment`:                                 with(func(l *httpresolver.Lookup) { l.URL += "#x" }),
		`url: there is a fragment (#), which is never sent`:        with(func(l *httpresolver.Lookup) { l.URL = "https://api.example.com/#/{key}" }),
		`url: {scope} stands before the path`:                      with(func(l *httpresolver.Lookup) { l.URL = "https://{scope}.example.com/" }),
		`method: "DELETE" is none of GET, POST`:                    with(func(l *httpresolver.Lookup) { l.Method = "DELETE" }),
		`body: only a POST has a body`:                             with(func(l *httpresolver.Lookup) { l.Body = "{}" }),
		`body: how a value stands in a body of type "text/xml" is not known`: with(func(l *httpresolver.Lookup) {
			l.Method, l.Body, l.Header = "POST", "{key}", map[string]string{"Content-Type": "text/xml"}
		}),
		`headers.Host: the connection has it`:                 with(func(l *httpresolver.Lookup) { l.Header = map[string]string{"Host": "x"} }),
		`headers.idempotency-key: a question is no operation`: with(func(l *httpresolver.Lookup) { l.Header = map[string]string{"idempotency-key": "x"} }),
		`headers.X Y: this is not the name of a header`:       with(func(l *httpresolver.Lookup) { l.Header = map[string]string{"X Y": "x"} }),
		`headers.X: the value contains a control character`:   with(func(l *httpresolver.Lookup) { l.Header = map[string]string{"X": "a\nb"} }),
		`headers.Authorization: there is a token too`:         with(func(l *httpresolver.Lookup) { l.Header = map[string]string{"Authorization": "x"} }),
		`provider_ref: "id" is not a JSON pointer`:            with(func(l *httpresolver.Lookup) { l.ProviderRef = "id" }),
		`rules: there are none`:                               with(func(l *httpresolver.Lookup) { l.Rules = nil }),
		`rules[0].then: it is missing`:                        rule(httpresolver.Rule{Status: []string{"200"}}),
		`rules[0].then: "hapend" is none of happened, declined, not_happened, tombstoned, pending, unknown; did you mean happened?`: rule(httpresolver.Rule{Status: []string{"200"}, Then: "hapend"}),
		`rules[0].status: it is missing`:                                                                                    rule(httpresolver.Rule{Then: "pending"}),
		`rules[0].status[0]: "20x" is not a status such as 200, 404 or 2xx`:                                                 rule(httpresolver.Rule{Status: []string{"20x"}, Then: "pending"}),
		`rules[0].status[1]: "600" is not a status`:                                                                         rule(httpresolver.Rule{Status: []string{"200", "600"}, Then: "pending"}),
		`rules[0].status[0]: among 4xx are 401, 403 and 429`:                                                                rule(httpresolver.Rule{Status: []string{"4xx"}, Then: "not_happened"}),
		`rules[0].status[0]: a 503 says something of the question`:                                                          rule(httpresolver.Rule{Status: []string{"503"}, Then: "not_happened"}),
		`rules[0].status[0]: a 401 says something of the question`:                                                          rule(httpresolver.Rule{Status: []string{"401"}, Then: "tombstoned"}),
		`rules[0].when.status: "status" is not a JSON pointer`:                                                              rule(httpresolver.Rule{Status: []string{"200"}, Then: "pending", When: map[string][]string{"status": {"a"}}}),
		`rules[0].when./a: it can never match`:                                                                              rule(httpresolver.Rule{Status: []string{"200"}, Then: "pending", When: map[string][]string{"/a": nil}}),
		`rules[0].present[0]: it can never match: "/a" must be absent too`:                                                  rule(httpresolver.Rule{Status: []string{"200"}, Then: "pending", Present: []string{"/a"}, Absent: []string{"/a"}}),
		`rules[0].absent[0]: it can never match: when needs a value at "/a"`:                                                rule(httpresolver.Rule{Status: []string{"200"}, Then: "pending", When: map[string][]string{"/a": {"b"}}, Absent: []string{"/a"}}),
		`rules[0].absent[0]: it can never match: a document is never absent`:                                                rule(httpresolver.Rule{Status: []string{"200"}, Then: "pending", Absent: []string{""}}),
		`rules[0].answer: it is missing; happened needs the answer`:                                                         rule(httpresolver.Rule{Status: []string{"200"}, Then: "happened"}),
		`rules[0].answer: only happened and declined have one`:                                                              rule(httpresolver.Rule{Status: []string{"200"}, Then: "pending", Answer: &httpresolver.Answer{Status: 200}}),
		`rules[0].answer.status: it is 0; an answer needs a status`:                                                         answer(httpresolver.Answer{}),
		`rules[0].answer.headers.Set-Cookie: it belongs to one exchange and is never replayed`:                              answer(httpresolver.Answer{Status: 200, Header: map[string]string{"Set-Cookie": "x"}}),
		`rules[0].answer.headers.Content-Type: the type of the body takes no placeholder`:                                   answer(httpresolver.Answer{Status: 200, Header: map[string]string{"Content-Type": "{key}"}}),
		`rules[0].answer.body: it is not JSON`:                                                                              answer(httpresolver.Answer{Status: 200, Body: "paid"}),
		`rules[0].answer.body: there is no placeholder {requst:/id}; did you mean {request}?`:                               answer(httpresolver.Answer{Status: 200, Body: `{"id":"{requst:/id}"}`}),
		`rules[0].answer.body: how a value stands in a body of type "text/html" is not known`:                               answer(httpresolver.Answer{Status: 200, Body: "{key}", Header: map[string]string{"Content-Type": "text/html"}}),
		`rules[0].answer.body_from: body is there too`:                                                                      answer(httpresolver.Answer{Status: 200, Body: "1", BodyFrom: "response"}),
		`rules[0].answer.body_from: "data" is not a JSON pointer: it begins with a slash, as in "/data"; or write response`: answer(httpresolver.Answer{Status: 200, BodyFrom: "data"}),
		`rules[1]: it can never match: rules[0], which comes first`: with(func(l *httpresolver.Lookup) {
			l.Rules = []httpresolver.Rule{{Status: []string{"2xx"}, Then: "pending"}, {Status: []string{"200"}, When: map[string][]string{"/a": {"b"}}, Then: "unknown"}}
		}),
		`rules[1]: it can never match: rules[0], which comes first, matches every reply`: with(func(l *httpresolver.Lookup) {
			l.Rules = []httpresolver.Rule{{Status: []string{"200"}, Present: []string{"/a"}, Then: "pending"}, {Status: []string{"200"}, When: map[string][]string{"/a": {"b"}}, Then: "unknown"}}
		}),
		`rules[0].status[0]: "" is not a status`: with(func(l *httpresolver.Lookup) {
			l.Rules = []httpresolver.Rule{{Status: []string{"", "200"}, Then: "pending"}, {Status: []string{"200"}, Then: "pending"}}
		}),
		`rules[0].status[0]: a 302 says something of the question`: rule(httpresolver.Rule{Status: []string{"302"}, Then: "not_happened"}),
		`rules[0].status[0]: a 1xx says something of the question`: rule(httpresolver.Rule{Status: []string{"1xx"}, Then: "tombstoned"}),
		`rules[2]: it can never match: rules[1], which comes first`: with(func(l *httpresolver.Lookup) {
			l.Rules = []httpresolver.Rule{
				{Status: []string{"200"}, When: map[string][]string{"/a": {"b"}}, Then: "pending"},
				{Status: []string{"200", "404"}, When: map[string][]string{"/a": {"c", "d"}}, Then: "pending"},
				{Status: []string{"404"}, When: map[string][]string{"/a": {"d"}, "/e": {"f"}}, Then: "unknown"},
			}
		}),
	} {
		o := &httpresolver.Options{}
		if strings.Contains(want, "token too") {
			o.Token = "x"
		}
		_, err := httpresolver.NewLookup(l, o)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
		if f, ok := errors.AsType[*httpresolver.FieldError](err); !ok || !strings.HasPrefix(want, f.Field+": ") {
			t.Errorf("%v has no field", err)
		}
	}
	_, err := httpresolver.NewLookup(ok, nil)
	must(t, err)
	// Rules of which each matches replies that those before it do not.
	apart := ok
	apart.Rules = []httpresolver.Rule{
		{Status: []string{"200"}, Absent: []string{"/a"}, Then: "pending"}, {Status: []string{"200"}, Absent: []string{"/b"}, Then: "pending"},
		{Status: []string{"200"}, Present: []string{"/c"}, Then: "pending"}, {Status: []string{"200"}, Then: "unknown"}, {Status: []string{"2xx"}, Then: "unknown"},
	}
	_, err = httpresolver.NewLookup(apart, nil)
	must(t, err)
	plain := ok
	plain.URL = "http://api.example.com/{key}"
	_, err = httpresolver.NewLookup(plain, &httpresolver.Options{PlainHTTP: true})
	must(t, err)
}

// A question has no effects that a second sending would repeat, and yet it is sent once;
// nothing is asked of the place that a redirect names, and no secret is in an error.
func TestLookupAsksOnceAndOnlyThere(t *testing.T) {
	t.Parallel()
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	r, err := httpresolver.NewLookup(httpresolver.Lookup{URL: server.URL + "/secret-path/{key}", Rules: rules()}, nil)
	must(t, err)
	if _, err := r.Resolve(t.Context(), unknown(0)); err == nil || asked != 1 || elsewhere != 0 {
		t.Errorf("%v, asked %d and %d times", err, asked, elsewhere)
	}
	server.Close()
	if _, err := r.Resolve(t.Context(), unknown(0)); err == nil || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Resolve(ctx, unknown(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A question has the headers and the body that are written, of any type, and no header of
// the question before it.
func TestLookupSendsWhatIsWritten(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if text, _ := io.ReadAll(r.Body); string(text) != "<open/>" {
			t.Errorf("the body is %s", text)
		}
		got <- r.Header
	}))
	defer server.Close()
	o := opts()
	o.Tracer = &onceTracer{}
	r, err := httpresolver.NewLookup(httpresolver.Lookup{
		Method: "POST", URL: server.URL, Body: "<open/>", Rules: []httpresolver.Rule{{Status: []string{"200"}, Then: "pending"}},
		Header: map[string]string{"Authorization": "Basic eDp5", "Accept": "text/xml", "Content-Type": "application/xml"},
	}, o)
	must(t, err)
	for _, trace := range []string{"00-a-b-01", ""} {
		_, err := r.Resolve(t.Context(), unknown(0))
		must(t, err)
		h := <-got
		if h.Get("Authorization") != "Basic eDp5" || h.Get("Accept") != "text/xml" || h.Get("Content-Type") != "application/xml" || h.Get("Traceparent") != trace {
			t.Errorf("sent %v, want the traceparent %q", h, trace)
		}
	}
}

// A onceTracer names the span of its first question only.
type onceTracer struct {
	tracer
	named bool
}

func (o *onceTracer) Inject(ctx context.Context, header map[string]string) {
	if !o.named {
		o.tracer.Inject(ctx, header)
	}
	o.named = true
}

// A reply may have 16 MiB, and one of more bytes is not read as if it ended there.
func TestRepliesHaveALargestSize(t *testing.T) {
	t.Parallel()
	size := 16 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
	defer server.Close()
	r, err := httpresolver.NewLookup(httpresolver.Lookup{URL: server.URL, Rules: []httpresolver.Rule{{Status: []string{"200"}, Then: "pending"}}}, opts())
	must(t, err)
	_, err = r.Resolve(t.Context(), unknown(0))
	must(t, err)
	size++
	if _, err := r.Resolve(t.Context(), unknown(0)); err == nil || !strings.Contains(err.Error(), "over 16777216 bytes") {
		t.Errorf("a reply that is too large: %v", err)
	}
}

// No proxy is asked: it could answer in place of the endpoint.
func TestNoProxyIsAsked(t *testing.T) { //nolint:paralleltest // it changes what all transports are made of
	there, proxied := 0, 0
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proxied++ }))
	defer proxy.Close()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { there++ }))
	defer server.Close()
	std := http.DefaultTransport.(*http.Transport)
	before := std.Proxy
	std.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
	defer func() { std.Proxy = before }()
	r, err := httpresolver.NewLookup(httpresolver.Lookup{URL: server.URL, Rules: []httpresolver.Rule{{Status: []string{"200"}, Then: "pending"}}}, opts())
	must(t, err)
	_, err = r.Resolve(t.Context(), unknown(0))
	must(t, err)
	if there != 1 || proxied != 0 {
		t.Errorf("the endpoint was asked %d times, and a proxy %d times", there, proxied)
	}
}

// A tracer that names one span.
type tracer struct{}

func (tracer) StartSpan(ctx context.Context, _ retrysafe.Span) context.Context { return ctx }
func (tracer) EndSpan(context.Context, retrysafe.Event)                        {}
func (tracer) Inject(_ context.Context, header map[string]string) {
	header["traceparent"] = "00-a-b-01"
}

// A question names its span to the endpoint, if there is a tracer.
func TestQuestionsCarryTheirTrace(t *testing.T) {
	t.Parallel()
	got := make(chan string, 2)
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Traceparent") }))
	t.Cleanup(provider.Close)
	for want, by := range map[string]retrysafe.Tracer{"": nil, "00-a-b-01": tracer{}} {
		o := opts()
		o.Tracer = by
		r, err := httpresolver.New(provider.URL, o)
		must(t, err)
		_, _ = r.Resolve(t.Context(), unknown(time.Hour)) // the reply is no verdict
		if sent := <-got; sent != want {
			t.Errorf("the endpoint got the traceparent %q, want %q", sent, want)
		}
	}
}
