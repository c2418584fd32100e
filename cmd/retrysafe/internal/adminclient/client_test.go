package adminclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/adminclient"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// A reply is what a gateway answers.
type reply struct {
	status int
	kind   string // empty: JSON
	body   any
	header map[string]string
}

// gateway returns a client of a gateway that gives these replies, one after the other and
// the last one ever again, and notes what it was asked.
func gateway(t *testing.T, replies ...reply) (*adminclient.Client, *[]string) {
	t.Helper()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		line := r.Method + " " + r.URL.String()
		if len(body) > 0 {
			line += " " + string(body)
		}
		if r.Header.Get("Authorization") != "Bearer token" || (len(body) > 0) != (r.Header.Get("Content-Type") != "") {
			t.Errorf("%s with %v", line, r.Header)
		}
		now := replies[min(len(asked), len(replies)-1)]
		asked = append(asked, line)
		kind := now.kind
		if kind == "" {
			kind = "application/json"
		}
		w.Header().Set("Content-Type", kind)
		for name, value := range now.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(now.status)
		if text, ok := now.body.(string); ok {
			_, _ = io.WriteString(w, text)
			return
		}
		_ = json.NewEncoder(w).Encode(now.body)
	}))
	t.Cleanup(server.Close)
	c, err := adminclient.New(server.URL+"/console/api/v1/", "token")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseConnections)
	return c, &asked
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://gw:1": true, "http://gw:1/console/": true, "unix:/run/x.sock": true, "unix:///run/x.sock": true,
		"gw:1": false, "ftp://gw": false, "https://": false, "https://u@gw": false, "https://gw?a=b": false, "https://gw#a": false, "unix:run/x.sock": false,
	} {
		if _, err := adminclient.New(address, "token"); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A problem is the error that the same action on the store has.
func TestProblemsAreErrorsOfTheOperator(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	for name, c := range map[string]struct {
		reply
		is   error
		text string
	}{
		"refused without an entry": {reply{status: 409, kind: problem, body: adminwire.Problem{Status: 409, Code: adminwire.CodeRefused, Detail: "it has changed"}}, operator.ErrStale, "it has changed"},
		"refused":                  {reply{status: 409, kind: problem, body: adminwire.Problem{Status: 409, Code: adminwire.CodeRefused, Entry: &operator.Entry{Verb: "release", Code: "live", Text: "it runs"}}}, operator.ErrLive, "it runs"},
		"invalid":                  {reply{status: 400, kind: problem, body: adminwire.Problem{Status: 400, Code: adminwire.CodeInvalid, Detail: "no reason"}}, operator.ErrInvalid, "no reason"},
		"another action":           {reply{status: 409, kind: problem, body: adminwire.Problem{Status: 409, Code: adminwire.CodeMismatch}}, retrysafe.ErrMismatch, ""},
		"not there":                {reply{status: 404, kind: problem, body: adminwire.Problem{Status: 404, Code: adminwire.CodeNotFound}}, retrysafe.ErrNotFound, ""},
		"unreadable":               {reply{status: 409, kind: problem, body: adminwire.Problem{Status: 409, Code: adminwire.CodeUnreadable}}, retrysafe.ErrUnreadable, ""},
		"unsupported":              {reply{status: 501, kind: problem, body: adminwire.Problem{Status: 501, Code: adminwire.CodeUnsupported}}, errors.ErrUnsupported, ""},
		"no store":                 {reply{status: 503, kind: problem, body: adminwire.Problem{Status: 503, Code: adminwire.CodeUnavailable}}, retrysafe.ErrUnavailable, ""},
		"forbidden":                {reply{status: 403, kind: problem, body: adminwire.Problem{Status: 403, Code: adminwire.CodeForbidden}}, adminclient.ErrAccess, ""},
		"slowed": {reply{status: 429, kind: problem, body: adminwire.Problem{Status: 429, Code: adminwire.CodeSlowed, Detail: "wrong tokens"}, header: map[string]string{"Retry-After": "7"}},
			adminclient.ErrAccess, "wrong tokens; try again after 7 s"},
		"another refusal":     {reply{status: 409, kind: problem, body: adminwire.Problem{Status: 409, Code: adminwire.CodeRunning, Detail: "it runs"}, header: map[string]string{"Retry-After": "7"}}, operator.ErrInvalid, "it runs"},
		"a bare 401":          {reply{status: 401, kind: "text/plain", body: "no"}, adminclient.ErrAccess, "status 401"},
		"a bare 403":          {reply{status: 403, kind: "text/plain", body: "no"}, adminclient.ErrAccess, "status 403"},
		"TLS":                 {reply{status: 400, kind: "text/plain", body: "This is an HTTPS address"}, nil, "begin it with https://"},
		"a page":              {reply{status: 200, kind: "text/html", body: "<p>"}, nil, "not the admin API"},
		"a redirect":          {reply{status: 302, body: "{}", header: map[string]string{"Location": "/"}}, nil, "status 302"},
		"a client's problem":  {reply{status: 404, kind: problem, body: `{"type":"https://example.com/p","code":"not-found"}`}, nil, "not the admin API"},
		"broken JSON":         {reply{status: 200, body: "{"}, nil, "cannot be read"},
		"a broken problem":    {reply{status: 500, kind: problem, body: "{"}, nil, "status 500: the problem cannot be read"},
		"a problem of theirs": {reply{status: 500, kind: problem, body: adminwire.Problem{Status: 500, Code: "internal", Detail: "a fault"}}, nil, "a fault"},
	} {
		client, _ := gateway(t, c.reply)
		_, err := client.Act(t.Context(), "release", operator.Action{Ref: retrysafe.Ref{Scope: "s", Key: "k"}}, nil)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) || c.is == nil && errors.Is(err, operator.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "another refusal" && strings.Contains(err.Error(), "7 s") {
			t.Errorf("%s: %v", name, err)
		}
	}
	client, _ := gateway(t, reply{status: 200, body: "{}"})
	if err := client.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "not the admin API") {
		t.Errorf("a service that says {} to all: %v", err)
	}
}

// Each question and action has all that it was given.
func TestWhatIsAsked(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 18, 12, 0, 0, 0, time.FixedZone("", 3600))
	ref := retrysafe.Ref{Scope: "s", Key: "k"}
	whole := operator.Filter{States: []retrysafe.State{retrysafe.StateUnknown}, Operation: "POST /a", Reason: "why", Status: 502, Tenant: "acme", Since: at, Until: at.Add(time.Hour)}
	all := whole
	all.After, all.Limit = ref, adminwire.MaxLimit
	answer := retrysafe.Result{Status: 201, Header: map[string][]string{"Location": {"/a/1"}}, Body: []byte("paid")}
	for want, do := range map[string]func(*adminclient.Client, context.Context) error{
		"GET /console/api/v1/audit?batch=b&before=2026-11-18T12%3A00%3A00Z&by=anna&limit=10000&ref=AXNr&since=2026-11-18T11%3A00%3A00Z&verb=release": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Audit(ctx, operator.AuditFilter{By: "anna", Verb: "release", Ref: ref, Batch: "b", Since: at, Before: at.Add(time.Hour), Limit: 20_000})
			return err
		},
		"GET /console/api/v1/audit?id=one": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Audit(ctx, operator.AuditFilter{ID: "one"})
			return err
		},
		"GET /console/api/v1/survey?scope=s&since=2026-11-18T11%3A00%3A00Z&spare_in_tx=true&until=2026-11-18T12%3A00%3A00Z": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Survey(ctx, operator.Suspects{Scope: "s", Since: at, Until: at.Add(time.Hour), SpareInTx: true})
			return err
		},
		"GET /console/api/v1/outbox/messages?after=7&failing=true&limit=3": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Messages(ctx, true, 7, 3)
			return err
		},
		"GET /console/api/v1/outbox/messages?limit=3": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Messages(ctx, false, 0, 3)
			return err
		},
		"GET /console/api/v1/outbox/receipts?after=7&limit=1000&provider_ref=ch_1&settled=AXNr": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Receipts(ctx, outbox.ReceiptQuery{ProviderRef: "ch_1", Settled: ref, After: 7, Limit: 2000})
			return err
		},
		"GET /console/api/v1/outbox/receipts?limit=1": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Receipts(ctx, outbox.ReceiptQuery{})
			return err
		},
		`POST /console/api/v1/keys/AXNr/resolve {"id":"one","revision":4,"why":"seen","provider_ref":"ch_1","answer":{"status":201,"body":"paid"}}`: func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Act(ctx, "resolve", operator.Action{ID: "one", By: "anna", Why: "seen", Ref: ref, Revision: 4, ProviderRef: "ch_1"}, &retrysafe.Result{Status: 201, Body: []byte("paid")})
			return err
		},
		`POST /console/api/v1/outbox/messages/9/redrive {"id":"one","revision":4,"why":"seen","force":true}`: func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.ActOnMessage(ctx, "redrive letter", operator.DeadLetterAction{ID: "one", Why: "seen", Letter: 9, Revision: 4, Force: true})
			return err
		},
		"GET /console/api/v1/status": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Facts(ctx)
			return err
		},
		"GET /console/api/v1/outbox/depth": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Depth(ctx)
			return err
		},
		"GET /console/api/v1/keys?" + query(&all): func(c *adminclient.Client, ctx context.Context) error {
			f := all
			f.Limit = 20_000
			_, err := c.List(ctx, f)
			return err
		},
		"GET /console/api/v1/groups?" + query(&whole): func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Groups(ctx, all)
			return err
		},
		"POST /console/api/v1/selections " + asJSON(t, adminwire.BatchRequest{Verb: "resolve", Filter: adminwire.NewFilter(&whole), Answer: adminwire.NewGivenAnswer(&answer, false)}): func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Select(ctx, operator.Batch{Verb: "resolve", Filter: whole, Answer: answer, ID: "none yet", Why: "none yet", Rate: 7})
			return err
		},
		"POST /console/api/v1/selections " + asJSON(t, adminwire.BatchRequest{Verb: "release", Filter: adminwire.NewFilter(&whole)}): func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Select(ctx, operator.Batch{Verb: "release", Filter: whole})
			return err
		},
		`POST /console/api/v1/outbox/messages/9/drop {"id":"one","revision":4,"why":"seen"}`: func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.ActOnMessage(ctx, "drop letter", operator.DeadLetterAction{ID: "one", Why: "seen", Letter: 9, Revision: 4})
			return err
		},
		`POST /console/api/v1/outbox/messages/9/skip {"id":"one","revision":4,"why":"seen"}`: func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.ActOnMessage(ctx, "skip message", operator.DeadLetterAction{ID: "one", Why: "seen", Letter: 9, Revision: 4})
			return err
		},
		`POST /console/api/v1/reconcile {"only":["sweep"]}`: func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Reconcile(ctx, []string{"sweep"})
			return err
		},
	} {
		c, asked := gateway(t, reply{status: 200, body: "{}"})
		if err := do(c, t.Context()); err != nil || len(*asked) != 1 || (*asked)[0] != want {
			t.Errorf("%v, asked\n%s, want\n%s", err, strings.Join(*asked, "\n"), want)
		}
	}
}

// query is what a filter is in a URL.
func query(f *operator.Filter) string {
	q := url.Values{}
	adminwire.EncodeFilter(q, f)
	return q.Encode()
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A caller gets all that a gateway answers, and what it was shown is what it asks to reveal.
func TestWhatIsAnswered(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	record := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Version: retrysafe.RecordVersion, State: retrysafe.StateCompleted, Revision: 7, Attempt: 1, Operation: "POST /a",
		CreatedAt: at, UpdatedAt: at, Deadline: at, ReadAt: at, Result: &retrysafe.Result{Status: 201, Header: map[string][]string{"A": {"b"}}, Body: []byte("paid")},
	}
	next := retrysafe.Ref{Scope: "s", Key: "next"}
	hidden, shown := adminwire.NewRecord(&record, adminwire.Names, false), adminwire.NewRecord(&record, adminwire.Contents, false)
	unreadable := adminwire.NewRecord(&retrysafe.Record{Ref: record.Ref, Revision: 7, State: retrysafe.StateUnknown}, adminwire.Names, true)
	letter := outbox.DeadLetter{Delivery: outbox.Delivery{ID: 9, Message: outbox.Message{Topic: "t", Key: "k", Payload: []byte("payload")}}, Revision: 8, Why: "refused"}
	entry := operator.Entry{ID: "one", Verb: "release", By: "anna"}
	ok := func(bodies ...any) (all []reply) {
		for _, body := range bodies {
			all = append(all, reply{status: 200, body: body})
		}
		return all
	}
	for name, c := range map[string]struct {
		replies []reply
		get     func(*adminclient.Client, context.Context) (any, error)
		want    any
		asked   string // the last question; empty: any
		is      error
	}{
		"a page": {ok(adminwire.Page{Records: []adminwire.Record{hidden, hidden}, Next: adminwire.FormatRef(next)}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			p, err := c.List(ctx, operator.Filter{})
			return fmt.Sprint(len(p.Records), p.Records[0].Ref, p.Records[1].Revision, p.Next, p.More), err
		}, fmt.Sprint(2, record.Ref, 7, next, true), "", nil},
		"the last page": {ok(adminwire.Page{Records: []adminwire.Record{hidden}}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			p, err := c.List(ctx, operator.Filter{})
			return fmt.Sprint(len(p.Records), p.Next, p.More), err
		}, fmt.Sprint(1, retrysafe.Ref{}, false), "", nil},
		"a page with a state that is none": {ok(`{"records":[{"state":"odd"}]}`), func(c *adminclient.Client, ctx context.Context) (any, error) {
			p, err := c.List(ctx, operator.Filter{})
			return len(p.Records), check(err, "the answer cannot be read")
		}, 0, "", nil},
		"a record": {ok(hidden), func(c *adminclient.Client, ctx context.Context) (any, error) {
			v, err := c.Show(ctx, record.Ref)
			return fmt.Sprint(v.Ref, v.State, v.Revision, v.BodySize(), len(v.Result.Body)), err
		}, fmt.Sprint(record.Ref, record.State, 7, 4, 0), "GET /console/api/v1/keys/AXNr", nil},
		"a record that cannot be read": {ok(unreadable), func(c *adminclient.Client, ctx context.Context) (any, error) {
			v, err := c.Show(ctx, record.Ref)
			return fmt.Sprint(v.Ref, v.Revision), err
		}, fmt.Sprint(record.Ref, 7), "", retrysafe.ErrUnreadable},
		"contents": {ok(hidden, adminwire.Outcome{Entry: entry, Record: &shown}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			v, err := c.Contents(ctx, record.Ref, "a complaint")
			return string(v.Result.Body), err
		}, "paid", `POST /console/api/v1/keys/AXNr/reveal {"revision":7,"why":"a complaint"}`, nil},
		"contents that are not there": {ok(hidden, adminwire.Outcome{Entry: entry}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			_, err := c.Contents(ctx, record.Ref, "a complaint")
			return nil, check(err, "has revealed nothing")
		}, nil, "", nil},
		"groups": {ok(adminwire.NewGroups([]operator.Group{{State: retrysafe.StateUnknown, Operation: "POST /a", Count: 3}})), func(c *adminclient.Client, ctx context.Context) (any, error) {
			all, err := c.Groups(ctx, operator.Filter{})
			return fmt.Sprint(len(all), all[0].Operation, all[0].Count), err
		}, "1POST /a3", "", nil},
		"the audit": {ok(adminwire.Audit{Entries: []operator.Entry{entry}}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			all, err := c.Audit(ctx, operator.AuditFilter{})
			return len(all), err
		}, 1, "", nil},
		"an action that was done before": {ok(adminwire.Outcome{Entry: entry, Replayed: true}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			e, err := c.Act(ctx, "release", operator.Action{Ref: record.Ref}, nil)
			return fmt.Sprint(e.ID, e.Replayed), err
		}, "onetrue", "", nil},
		"a refusal of before": {[]reply{{status: 409, kind: "application/problem+json", body: adminwire.Problem{Code: adminwire.CodeRefused, Entry: &entry, Replayed: true}}}, func(c *adminclient.Client, ctx context.Context) (any, error) {
			_, err := c.Act(ctx, "release", operator.Action{Ref: record.Ref}, nil)
			refused, _ := errors.AsType[*operator.RefusedError](err)
			return refused != nil && refused.Entry.Replayed && refused.Entry.ID == "one", nil
		}, true, "", nil},
		"a selection": {ok(adminwire.Selection{ID: "sel", Count: 3, Disputed: 2, Unreadable: 1, Sample: []adminwire.Record{hidden}}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			n, err := c.Select(ctx, operator.Batch{Verb: "release"})
			return fmt.Sprint(n.Count, n.Disputed, n.Unreadable, len(n.Sample), n.Sample[0].Ref, n.Of), err
		}, fmt.Sprint(3, 2, 1, 1, record.Ref, "sel"), "", nil},
		"a survey": {ok(operator.Report{Looked: 3}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			r, err := c.Survey(ctx, operator.Suspects{})
			return r.Looked, err
		}, 3, "", nil},
		"messages": {ok(adminwire.Messages{Messages: []adminwire.Message{adminwire.NewMessage(&letter, true, adminwire.Names)}}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			all, err := c.Messages(ctx, false, 0, 1)
			return fmt.Sprint(len(all), all[0].ID, all[0].PayloadSize()), err
		}, "1 9 7", "", nil},
		"a dead message": {ok(adminwire.NewMessage(&letter, true, adminwire.Names)), func(c *adminclient.Client, ctx context.Context) (any, error) {
			m, dead, err := c.Message(ctx, 9)
			return fmt.Sprint(m.ID, m.Why, dead), err
		}, "9refusedtrue", "GET /console/api/v1/outbox/messages/9", nil},
		"a message that is tried": {ok(adminwire.NewMessage(&letter, false, adminwire.Names)), func(c *adminclient.Client, ctx context.Context) (any, error) {
			_, dead, err := c.Message(ctx, 9)
			return dead, err
		}, false, "", nil},
		"a payload": {ok(adminwire.Outcome{Entry: entry, Message: message(&letter)}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			m, err := c.Payload(ctx, adminwire.MessageView{DeadLetter: letter}, "a complaint")
			return string(m.Payload), err
		}, "payload", `POST /console/api/v1/outbox/messages/9/reveal {"revision":8,"why":"a complaint"}`, nil},
		"a payload that is not there": {ok(adminwire.Outcome{Entry: entry}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			_, err := c.Payload(ctx, adminwire.MessageView{DeadLetter: letter}, "a complaint")
			return nil, check(err, "has revealed nothing")
		}, nil, "", nil},
		"a verb that is none": {ok("{}"), func(c *adminclient.Client, ctx context.Context) (any, error) {
			_, err := c.ActOnMessage(ctx, "burn", operator.DeadLetterAction{Letter: 9})
			return nil, check(err, `there is no verb "burn"`)
		}, nil, "", nil},
		"the depth": {ok(adminwire.Depth{Waiting: 1, Failing: 2, Dead: 3, Oldest: 4, OldestDead: 5}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			return c.Depth(ctx)
		}, adminwire.Depth{Waiting: 1, Failing: 2, Dead: 3, Oldest: 4, OldestDead: 5}, "", nil},
		"receipts": {ok(adminwire.NewReceipts([]outbox.KeptReceipt{{ID: 4, ProviderRef: "ch_1"}})), func(c *adminclient.Client, ctx context.Context) (any, error) {
			all, err := c.Receipts(ctx, outbox.ReceiptQuery{})
			return fmt.Sprint(len(all), all[0].ID, all[0].ProviderRef), err
		}, "1 4ch_1", "", nil},
		"facts": {ok(adminwire.Status{Version: "v1", Identity: "id"}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			return c.Facts(ctx)
		}, adminwire.Status{Version: "v1", Identity: "id"}, "", nil},
		"duties": {ok(adminwire.Pass{Duties: map[string]map[string]uint64{"sweep": {"failed": 2}}}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			all, err := c.Reconcile(ctx, nil)
			return all["sweep"]["failed"], err
		}, uint64(2), "", nil},
		"a quarantine": {ok(adminwire.Job{State: adminwire.JobRunning, Report: &operator.Report{Looked: 5}}, adminwire.Job{State: adminwire.JobDone, Entry: &entry}), func(c *adminclient.Client, ctx context.Context) (any, error) {
			seen := 0
			e, err := c.Quarantine(ctx, operator.Suspects{ID: "one", Progress: func(r operator.Report) { seen = r.Looked }})
			return fmt.Sprint(e.ID, seen), err
		}, "one5", "GET /console/api/v1/quarantines/one", nil},
	} {
		client, asked := gateway(t, c.replies...)
		got, err := c.get(client, t.Context())
		if !errors.Is(err, c.is) || (err != nil) != (c.is != nil) || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, c.want)
		}
		if c.asked != "" && (*asked)[len(*asked)-1] != c.asked {
			t.Errorf("%s: asked %v, want %s", name, *asked, c.asked)
		}
	}
}

// questions is every method that asks a gateway.
func questions() map[string]func(*adminclient.Client, context.Context) error {
	ref := retrysafe.Ref{Scope: "s", Key: "the-key"}
	return map[string]func(*adminclient.Client, context.Context) error{
		"Open":  func(c *adminclient.Client, ctx context.Context) error { return c.Open(ctx) },
		"Facts": func(c *adminclient.Client, ctx context.Context) error { _, err := c.Facts(ctx); return err },
		"List": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.List(ctx, operator.Filter{Tenant: "the-key"})
			return err
		},
		"Show": func(c *adminclient.Client, ctx context.Context) error { _, err := c.Show(ctx, ref); return err },
		"Contents": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Contents(ctx, ref, "why")
			return err
		},
		"Groups": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Groups(ctx, operator.Filter{})
			return err
		},
		"Audit": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Audit(ctx, operator.AuditFilter{})
			return err
		},
		"Act": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Act(ctx, "release", operator.Action{Ref: ref}, nil)
			return err
		},
		"Select": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Select(ctx, operator.Batch{})
			return err
		},
		"Apply": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Apply(ctx, operator.Batch{}, &adminwire.Counted{})
			return err
		},
		"Survey": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Survey(ctx, operator.Suspects{})
			return err
		},
		"Quarantine": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Quarantine(ctx, operator.Suspects{})
			return err
		},
		"Reconcile": func(c *adminclient.Client, ctx context.Context) error { _, err := c.Reconcile(ctx, nil); return err },
		"Messages": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Messages(ctx, true, 0, 1)
			return err
		},
		"Message": func(c *adminclient.Client, ctx context.Context) error { _, _, err := c.Message(ctx, 9); return err },
		"ActOnMessage": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.ActOnMessage(ctx, "drop letter", operator.DeadLetterAction{Letter: 9})
			return err
		},
		"Payload": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Payload(ctx, adminwire.MessageView{}, "why")
			return err
		},
		"Depth": func(c *adminclient.Client, ctx context.Context) error { _, err := c.Depth(ctx); return err },
		"Receipts": func(c *adminclient.Client, ctx context.Context) error {
			_, err := c.Receipts(ctx, outbox.ReceiptQuery{})
			return err
		},
	}
}

// Whatever is asked, a refusal is one, an answer that breaks off is none, and without an
// answer the error says why, and tells no key.
func TestEveryQuestionHasItsError(t *testing.T) {
	t.Parallel()
	all := questions()
	for m := range reflect.TypeFor[*adminclient.Client]().Methods() {
		switch m.Name {
		case "Person", "InClearText", "CloseConnections": // they ask nothing
		default:
			if all[m.Name] == nil {
				t.Errorf("%s is not tested here", m.Name)
			}
		}
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(secure.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(cut.Close)
	for address, want := range map[string]string{
		"https" + strings.TrimPrefix(plain.URL, "http"): "an address without TLS",
		secure.URL: "is not trusted here",
		gone.URL:   "nothing listens there",
		"unix:" + filepath.Join(t.TempDir(), "absent.sock"): "there is no socket",
		cut.URL: "broke off",
	} {
		client, err := adminclient.New(address, "token")
		if err != nil {
			t.Fatal(err)
		}
		for name, ask := range all {
			if err := ask(client, t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "the-key") || strings.Contains(err.Error(), "/api/v1") {
				t.Errorf("%s at %s: %v, want %q in it", name, address, err, want)
			}
		}
		client.CloseConnections()
	}
	for name, ask := range all {
		client, _ := gateway(t, reply{status: 403, kind: "application/problem+json", body: adminwire.Problem{Status: 403, Code: adminwire.CodeForbidden, Detail: "this role may only read"}})
		if err := ask(client, t.Context()); !errors.Is(err, adminclient.ErrAccess) || !strings.Contains(err.Error(), "only read") {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
}

// A socket is asked like an address, and its name does not matter.
func TestSocketIsAsked(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "rs") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"anna at `+r.Host+r.URL.Path+`"}`)
	}))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	for _, address := range []string{"unix:" + path, "unix://" + path} {
		c, err := adminclient.New(address, "token")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Open(t.Context()); err != nil || c.Person().Name != "anna at retrysafe/api/v1/whoami" || c.InClearText() {
			t.Errorf("%s: %v, %q, in clear text: %t", address, err, c.Person().Name, c.InClearText())
		}
		c.CloseConnections()
	}
	for address, clear := range map[string]bool{
		"http://gw:1": true, "http://10.0.0.1:1": true, "https://gw:1": false, "http://localhost:1": false, "http://127.0.0.2:1": false, "http://[::1]:1": false,
	} {
		if c, err := adminclient.New(address, "token"); err != nil || c.InClearText() != clear {
			t.Errorf("%s: %v, in clear text: %t", address, err, !clear)
		}
	}
}

func message(m *outbox.DeadLetter) *adminwire.Message {
	j := adminwire.NewMessage(m, true, adminwire.Contents)
	return &j
}

// check returns an error unless err has the text.
func check(err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("%w has no %q in it", err, text)
	}
	return nil
}

// A job in the gateway is asked about until it has ended. A question without an answer is
// repeated.
func TestJobsAreWaitedFor(t *testing.T) {
	t.Parallel()
	running := reply{status: 202, body: adminwire.Job{ID: "a/b", State: "running", Counts: &operator.BatchReport{Done: 1}}}
	down := reply{status: 503, kind: "application/problem+json", body: adminwire.Problem{Status: 503, Code: adminwire.CodeUnavailable}}
	done := reply{status: 200, body: adminwire.Job{ID: "a/b", State: adminwire.JobDone, Replayed: true, Counts: &operator.BatchReport{Done: 2}, Entry: &operator.Entry{ID: "a/b", Outcome: operator.StatusDone}}}
	var seen []int
	batch := operator.Batch{ID: "a/b", Why: "w", Verb: "release", Rate: 3, Progress: func(r operator.BatchReport) { seen = append(seen, r.Done) }}
	c, asked := gateway(t, running, down, done)
	e, err := c.Apply(t.Context(), batch, &adminwire.Counted{Of: "selection"})
	if err != nil || e.ID != "a/b" || !e.Replayed || len(seen) != 3 || seen[2] != 2 || len(*asked) != 3 || (*asked)[2] != "GET /console/api/v1/batches/a%2Fb" {
		t.Errorf("%+v, %v, progress %v, asked %v", e, err, seen, *asked)
	}
	for _, want := range []string{`"id":"a/b"`, `"why":"w"`, `"rate":3`, `"selection":"selection"`, `"verb":"release"`} {
		if !strings.Contains((*asked)[0], want) {
			t.Errorf("the job began with %s, without %s", (*asked)[0], want)
		}
	}
	for text, c := range map[string]struct {
		job adminwire.Job
		is  error
	}{
		"does not say how it ended": {adminwire.Job{State: adminwire.JobDone}, nil},
		"it was interrupted":        {adminwire.Job{State: adminwire.JobInterrupted}, nil},
		"no store":                  {adminwire.Job{State: adminwire.JobInterrupted, Problem: &adminwire.Problem{Code: adminwire.CodeUnavailable, Detail: "no store"}}, retrysafe.ErrUnavailable},
		"has ended meanwhile":       {adminwire.Job{State: adminwire.JobOpen}, nil},
	} {
		client, _ := gateway(t, reply{status: 200, body: c.job})
		if _, err := client.Quarantine(t.Context(), operator.Suspects{ID: "one"}); err == nil || !strings.Contains(err.Error(), text) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	batch.Progress = func(operator.BatchReport) { cancel() }
	c, _ = gateway(t, running)
	if _, err := c.Apply(ctx, batch, &adminwire.Counted{}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the gateway goes on") {
		t.Errorf("a caller that leaves: %v", err)
	}
}
