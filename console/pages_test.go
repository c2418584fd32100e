package console_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/operator"
)

// page returns the page at a path, for the holder of a token.
func (s *site) page(token, path string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, strings.TrimSuffix(s.url, "/api/v1")+path, nil)
	must(s.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(s.t, err)
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: status %d\n%s", path, res.StatusCode, text)
	}
	return string(text)
}

// form sends a form to a path, and returns the status and the page.
func (s *site) form(token, path string, fields url.Values) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, strings.TrimSuffix(s.url, "/api/v1")+path, strings.NewReader(fields.Encode()))
	must(s.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(s.t, err)
	return res.StatusCode, html.UnescapeString(string(text))
}

// until returns the page once it has what is read in the background.
func (s *site) until(token, path, has string) string {
	s.t.Helper()
	text := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if text = s.page(token, path); strings.Contains(text, has) {
			return text
		}
	}
	s.t.Fatalf("%s has no %q:\n%s", path, has, text)
	return ""
}

// unknowns stores records that need a person, many at a time.
func (s *site) unknowns(n int) {
	s.t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	store := func(i int) {
		if _, err := s.store.Create(s.t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "tenant", Key: fmt.Sprint("key-", i)}, Operation: "POST /payments", State: retrysafe.StateUnknown, Reason: "the service answered 500",
			Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{byte(i), byte(i >> 8), 1}, Attempt: 1, Retain: time.Hour,
		}}); err != nil {
			s.t.Error(err)
		}
	}
	for i := range n {
		wg.Go(func() { store(i) })
	}
}

// A count that is not of all records is marked, as one above 100,000 is.
func TestCountsOfManyAreMarked(t *testing.T) { onStores(t, countsOfManyAreMarked) }

func countsOfManyAreMarked(t *testing.T, s *site) {
	t.Helper()
	const stored, counted = 700, 500 // the first page that is read has 500
	s.handler.CountUpTo(counted)
	s.unknowns(stored)
	text := s.until(anna, "/", "need you</h2>")
	found := regexp.MustCompile(`About ([\d,]+) keys or more need you`).FindStringSubmatch(text)
	if found == nil || !strings.Contains(text, `<span class="about">about</span> `+found[1]) {
		t.Fatalf("the count is not marked:\n%s", text)
	}
	var n int
	if _, err := fmt.Sscan(strings.ReplaceAll(found[1], ",", ""), &n); err != nil || n < counted || n > stored {
		t.Errorf("it counts %s of %d, want at least %d", found[1], stored, counted)
	}
	if text := s.page(anna, "/reconciliation"); !strings.Contains(text, "about "+found[1]) {
		t.Errorf("the count of the reconciliation is not marked:\n%s", text)
	}
}

// A count of all records is exact, and not marked.
func TestCountsOfAFewAreExact(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.unknowns(7)
	if text := s.until(anna, "/", "7 keys need you"); strings.Contains(text, `class="about"`) || strings.Contains(text, "About ") {
		t.Errorf("the count is marked:\n%s", text)
	}
}

// A form that answers an operation with a success has a body, for one key and for many: an
// empty field is no answer.
func TestFormsNeedTheBodyOfASuccess(t *testing.T) {
	t.Parallel()
	s := start(t)
	r, _ := s.record("k", retrysafe.StateUnknown)
	one := "/key/act/resolve?" + url.Values{"scope": {r.Scope}, "key": {r.Key}}.Encode()
	for path, fields := range map[string]url.Values{one: {}, "/keys/batch/preview?state=unknown": {"verb": {"resolve"}}} {
		fields.Set("id", "seen")
		fields.Set("revision", fmt.Sprint(r.Revision))
		fields.Set("why", "ch_17 is there")
		fields.Set("answer_status", "201")
		if status, text := s.form(anna, path, fields); status != http.StatusUnprocessableEntity || !strings.Contains(text, "the answer has no body, and clients' programs read that of a 201") {
			t.Errorf("%s: got %d\n%s", path, status, text)
		}
		for answer, body := range map[string]string{"204": "", "205": "", "201": "paid"} {
			fields.Set("answer_status", answer)
			fields.Set("answer_body", body)
			fields.Set("verb", "resolve")
			if status, text := s.form(anna, "/keys/batch/preview?state=unknown", fields); status != http.StatusOK || !strings.Contains(text, "1 key would be changed") {
				t.Errorf("%s with %s: got %d\n%s", path, answer, status, text)
			}
		}
	}
	if now, err := s.service.Show(t.Context(), r.Ref); err != nil || now.State != retrysafe.StateUnknown {
		t.Errorf("the record is %s, %v", now.State, err)
	}
}

// The pages of the audit, one behind the other, have each key of a batch once, and nothing
// that the filter leaves out.
func TestAuditIsPagedUnderItsFilter(t *testing.T) { onStores(t, auditIsPagedUnderItsFilter) }

func auditIsPagedUnderItsFilter(t *testing.T, s *site) {
	t.Helper()
	const many = 130
	s.unknowns(many)
	b := operator.Batch{ID: "after-the-outage", By: "anna", Why: "none of them ran", Verb: "release", Filter: operator.Filter{Operation: "POST /payments"}}
	some, err := s.service.Select(t.Context(), b)
	must(t, err)
	_, err = s.service.Apply(t.Context(), b, some)
	must(t, err)
	for i := range 5 { // before and after, by others
		r, _ := s.record(fmt.Sprint("other ", i), retrysafe.StateUnknown)
		_, err := s.service.Release(t.Context(), operator.Action{By: "bert", Why: "one of many", Ref: r.Ref, Revision: r.Revision})
		must(t, err)
	}
	older := regexp.MustCompile(`<a class="button" href="([^"]+)">Older</a>`)
	row := regexp.MustCompile(`href="/retrysafe/key\?key=([^&"]+)`)
	for _, filter := range []url.Values{
		{"batch": {b.ID}, "by": {"anna"}, "verb": {"release"}, "since": {"1h"}},
		{"batch": {b.ID}},
	} {
		seen, pages := map[string]int{}, 0
		for path := "/audit?" + filter.Encode(); path != ""; pages++ {
			text := s.page(reader, path)
			for _, m := range row.FindAllStringSubmatch(text, -1) {
				seen[m[1]]++
			}
			path = ""
			if m := older.FindStringSubmatch(text); m != nil {
				path = strings.TrimPrefix(html.UnescapeString(m[1]), "/retrysafe")
				next, err := url.Parse(path)
				must(t, err)
				for name := range filter {
					if next.Query().Get(name) != filter.Get(name) {
						t.Errorf("the link to the next page is %s, without the filter's %s", path, name)
					}
				}
			}
		}
		for i := range many {
			if n := seen[fmt.Sprint("key-", i)]; n != 1 {
				t.Errorf("%v: key-%d is there %d times", filter, i, n)
			}
		}
		if len(seen) != many || pages < 2 {
			t.Errorf("%v: %d keys on %d pages, want %d", filter, len(seen), pages, many)
		}
	}
}

// A person with the role read is shown no action, and told which role takes it.
func TestReaderIsOfferedNoAction(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.unknowns(3)
	for _, c := range []struct{ path, offered string }{
		{"/", "Settle together"}, {"/keys", "Act on everything"}, {"/key?scope=tenant&key=key-1", "What you may do"}, {"/keys/batch?state=unknown", "Count them first"},
	} {
		if text := s.until(anna, c.path, c.offered); strings.Contains(text, "Your role is read") {
			t.Errorf("%s: a person that may act is taken for a reader", c.path)
		}
		text := s.page(reader, c.path)
		if strings.Contains(text, c.offered) || c.path != "/keys" && !strings.Contains(text, "the role act") {
			t.Errorf("%s: a reader is offered %q, or not told of the role:\n%s", c.path, c.offered, text)
		}
	}
}

// Where the process knows that neither a resolver nor a webhook is about an operation, no
// page says that one is asked: an operator has to settle its unknown outcomes.
func TestPagesSayThatAnOperatorHasToSettleIt(t *testing.T) {
	t.Parallel()
	const settles = "an operator has to settle"
	paths := map[string]string{
		"/": "needs you", "/key?scope=tenant&key=k": "What you may do", "/keys/batch?operation=POST+%2Fcharges&state=unknown": "Count them first", "/reconciliation": "POST /charges",
	}
	for _, c := range []struct {
		name  string
		looks func(string) bool
		asks  bool
	}{
		{"known to be none", func(operation string) bool { return operation != "POST /charges" }, false},
		{"known to be one", func(operation string) bool { return operation == "POST /charges" }, true},
		{"not known", nil, true},
	} {
		s := start(t, func(o *console.Options) { o.Overview.Facts.LookedInto = c.looks })
		s.record("k", retrysafe.StateUnknown)
		for path, has := range paths {
			text := strings.ToLower(html.UnescapeString(s.until(anna, path, has)))
			asks := strings.Contains(text, "resolvers are asked") || strings.Contains(text, "ask the resolvers again")
			if asks != c.asks {
				t.Errorf("%s, %s: it says that resolvers are asked: %v, want %v\n%s", c.name, path, asks, c.asks, text)
			}
			if says := strings.Contains(text, settles); says == c.asks && (path == "/" || strings.HasPrefix(path, "/key?")) {
				t.Errorf("%s, %s: it says that %s it: %v\n%s", c.name, path, settles, says, text)
			}
		}
		if text := s.page(anna, "/keys/batch?operation=POST+%2A&state=unknown"); !strings.Contains(text, "ask the resolvers again") { // another operation may match
			t.Errorf("%s: a pattern of operations has no redrive\n%s", c.name, text)
		}
	}
}

// The page of ledgers names the field of the configuration that adds one.
func TestLedgersPageNamesTheField(t *testing.T) {
	t.Parallel()
	if text := start(t).page(anna, "/ledgers"); !strings.Contains(text, "<code>ledger</code>") {
		t.Errorf("it does not name the field ledger:\n%s", text)
	}
}

// The line that replays a request leaves what the record does not know to the reader.
func TestCurlLineNamesNoContentType(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.unknowns(1)
	text := s.page(anna, "/key?scope=tenant&key=key-0")
	if !strings.Contains(text, "Content-Type: $TYPE") || !strings.Contains(text, "as they were the first time") {
		t.Errorf("the page has no line:\n%s", text)
	}
}

// The page of the proof shows the report that there is, or says how to get one.
func TestProofPage(t *testing.T) {
	t.Parallel()
	var report []byte
	var missing error = fs.ErrNotExist
	s := start(t, func(o *console.Options) {
		o.Overview.Facts.Proof = func(context.Context) ([]byte, error) { return report, missing }
	})
	if text := s.page(reader, "/proof"); !strings.Contains(text, "retrysafe prove --store") || !strings.Contains(text, "admin.proof") || !strings.Contains(text, "is not there") {
		t.Errorf("without a report:\n%s", text)
	}
	report, missing = []byte(`{"program": "retrysafe 1", "verdict": "passed", "seed": 18446744073709551615, "results": [{"check": "kill", "shows": "one effect", "verdict": "passed"}]}`), nil
	if text := s.page(reader, "/proof"); !strings.Contains(text, "18446744073709551615") || !strings.Contains(text, "one effect") {
		t.Errorf("with a report:\n%s", text)
	}
}
