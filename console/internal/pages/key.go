package pages

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/operator"
)

// keyData is what the page of one key shows.
type keyData struct {
	Row       keyRow
	Record    *retrysafe.Record
	Revision  string
	Tenant    string
	Effects   string
	Lapse     string
	Provider  string
	Trace     string
	Meaning   string
	Client    string // what a client gets now
	Due       string // what happens at the deadline
	Actions   []action
	Machine   machine
	Timeline  []event
	AuditNote string
	Request   string // "1,024 bytes", or empty
	Answer    string
	Content   *content
	RevealURL string
	RevealID  string
	Curl      string
	CurlNote  string
	Here      string
	TenantURL string
	OpURL     string
}

// content is what a record holds that pages hide until a person asks.
type content struct {
	Status      string
	Headers     []string
	Body        string
	Omitted     bool
	Request     string
	Checkpoints []string
}

func (p *Pages) key(w http.ResponseWriter, r *http.Request) { p.showKey(w, r, http.StatusOK, nil) }

// showKey shows the page of the key in the request's address, with a message above it.
func (p *Pages) showKey(w http.ResponseWriter, r *http.Request, status int, n *note) {
	ref := refOf(r)
	if ref.Scope == "" || ref.Key == "" {
		p.fail(w, r, http.StatusBadRequest, "The address names no key.")
		return
	}
	rec, err := p.Service.Show(r.Context(), ref)
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		p.fail(w, r, http.StatusNotFound, "There is no such key: it was forgotten, or never existed.")
		return
	case errors.Is(err, retrysafe.ErrUnreadable):
		rec.Version = 0 // shown as unreadable: parts of it may be wrong
		rec.Ref = ref
	case err != nil:
		p.storeFailed(w, r, err)
		return
	}
	if n == nil {
		n = doneNote(&rec, r.URL.Query().Get("done"))
	}
	p.showRecord(w, r, status, &rec, n, false)
}

// showRecord shows the page of a key as it was read.
func (p *Pages) showRecord(w http.ResponseWriter, r *http.Request, status int, rec *retrysafe.Record, n *note, reveal bool) {
	d := p.keyData(r.Context(), rec, access.From(r.Context()).May(access.RoleAct))
	if reveal {
		d.Content = contentOf(rec)
	}
	p.show(w, r, status, "key", view{Title: "Key " + d.Row.Hash, Page: "keys", Note: n, Data: d, Here: d.Here})
}

// doneNote says that an action was carried out, if the record shows that it was.
func doneNote(r *retrysafe.Record, id string) *note {
	if id == "" {
		return nil
	}
	for i := range r.Inquiry.Notes {
		if n := &r.Inquiry.Notes[i]; n.ID == id {
			return &note{"ok", "Done. The record is " + stateText(r) + " now.", visible(n.Text)}
		}
	}
	return &note{"ok", "Done. The record is " + stateText(r) + " now.", ""}
}

func (p *Pages) keyData(ctx context.Context, r *retrysafe.Record, mayAct bool) keyData {
	tenant, _, _ := strings.Cut(r.Scope, "\x1f")
	d := keyData{
		Row: p.keyRow(r), Record: r, Revision: fmt.Sprint(r.Revision), Tenant: visible(tenant), Effects: r.Effects.String(), Lapse: r.Lapse.String(),
		Provider: visible(r.ProviderRef), Machine: newMachine(r), Here: p.keyURL(r.Ref),
		TenantURL: p.link("/keys", url.Values{"tenant": {tenant}}), OpURL: p.link("/keys", url.Values{"operation": {r.Operation}}),
	}
	d.Meaning, d.Client, d.Due = p.explain(r)
	for _, a := range p.actionsOf(r) {
		a.ID, a.Revision, a.URL = rand.Text(), r.Revision, p.link("/key/act/"+a.Verb, url.Values{"scope": {r.Scope}, "key": {r.Key}})
		d.Actions = append(d.Actions, a)
	}
	if !mayAct {
		d.Actions = nil
	}
	if len(r.Request) > 0 {
		d.Request = count(len(r.Request), "byte", "bytes")
	}
	if r.Result != nil {
		d.Answer = fmt.Sprintf("%d, %s", r.Result.Status, count(len(r.Result.Body), "byte", "bytes"))
		if r.Result.Omitted {
			d.Answer = fmt.Sprintf("%d; the body was not kept", r.Result.Status)
		}
	}
	if mayAct && r.Readable() {
		d.RevealURL, d.RevealID = p.link("/key/reveal", url.Values{"scope": {r.Scope}, "key": {r.Key}}), rand.Text()
	}
	entries, err := p.auditOf(ctx, r.Ref)
	if err != nil {
		d.AuditNote = "The audit was not read in time; actions that were refused may be missing here."
	}
	d.Timeline = timeline(r, entries, d.Due)
	d.Curl, d.CurlNote = p.curl(r)
	if n := r.Inquiry.Notes; len(n) > 0 && n[0].By == traceAuthor && len(n[0].Text) == len("00-")+32+len("-0123456789abcdef-01") {
		d.Trace = visible(n[0].Text[3:35])
	}
	return d
}

// traceAuthor is the author of the first note of a record whose first attempt was traced.
// Its text is a W3C traceparent.
const traceAuthor = "trace"

// auditOf returns the actions on one key. It reads the whole audit, so its time is bounded.
func (p *Pages) auditOf(ctx context.Context, ref retrysafe.Ref) ([]operator.Entry, error) {
	return within(ctx, p, patience, func(ctx context.Context) ([]operator.Entry, error) {
		return p.Service.Audit(ctx, operator.AuditFilter{Ref: ref, Limit: 50})
	})
}

// contentOf returns what a record holds, for people. Numbers stay as they were written.
func contentOf(r *retrysafe.Record) *content {
	c := &content{Request: bodyText(r.Request)}
	if res := r.Result; res != nil {
		c.Status, c.Omitted, c.Body = fmt.Sprint(res.Status), res.Omitted, bodyText(res.Body)
		for _, name := range slices.Sorted(maps.Keys(res.Header)) {
			for _, value := range res.Header[name] {
				c.Headers = append(c.Headers, visible(name)+": "+visible(value))
			}
		}
	}
	steps, err := r.Checkpoint.Steps()
	if err != nil || len(steps) == 0 {
		if !r.Checkpoint.IsZero() {
			c.Checkpoints = append(c.Checkpoints, visible(r.Checkpoint.Phase)+": "+bodyText(r.Checkpoint.Data))
		}
		return c
	}
	for i := range steps {
		s := &steps[i]
		text := visible(s.Name) + ": " + bodyText(s.Result)
		if s.Open {
			text = visible(s.Name) + ", called with: " + bodyText(s.Request)
		}
		c.Checkpoints = append(c.Checkpoints, text)
	}
	return c
}

// maxBody bounds how much of a body a page shows.
const maxBody = 64 << 10

func bodyText(body []byte) string {
	cut := ""
	if len(body) > maxBody {
		cut = fmt.Sprintf("\n… and %s more", count(len(body)-maxBody, "byte", "bytes"))
		body = body[:maxBody]
	}
	var b bytes.Buffer
	if cut == "" && json.Indent(&b, body, "", "  ") == nil { // it copies numbers as they are
		body = b.Bytes()
	}
	return visibleLines(string(body)) + cut
}

// curl returns the command line that sends a request under the key again.
func (p *Pages) curl(r *retrysafe.Record) (line, remark string) {
	method, path, ok := strings.Cut(r.Operation, " ")
	if !ok || strings.ContainsFunc(method, func(c rune) bool { return c < 'A' || c > 'Z' }) || !strings.HasPrefix(path, "/") {
		return "", "The operation is not a method and a path, so the console does not know what a client sends."
	}
	if !utf8.ValidString(r.Key) || strings.ContainsFunc(r.Key, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return "", "The key has characters that a command line cannot carry safely."
	}
	target := `"$API"` + shellWord(path)
	if p.Facts.API != "" {
		target = shellWord(p.Facts.API + path)
	}
	line = fmt.Sprintf("curl -i -X %s %s \\\n  -H \"Authorization: $TOKEN\" \\\n  -H \"Content-Type: $TYPE\" \\\n  -H %s \\\n  --data-binary @request", method, target, shellWord(`Idempotency-Key: "`+r.Key+`"`))
	return line, "The record has no copy of the request: put its bytes into the file request, its content type into $TYPE and the caller's Authorization into $TOKEN, all as they were the first time. A stored answer comes with Idempotent-Replayed: true."
}

// shellWord returns text as one word of a shell.
func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// reveal shows the content of a record after the audit has a note of it.
func (p *Pages) reveal(w http.ResponseWriter, r *http.Request) {
	a, err := actionFrom(r)
	var rec retrysafe.Record
	if err == nil {
		rec, _, err = p.Service.Reveal(context.WithoutCancel(r.Context()), a)
	}
	if err != nil {
		p.refused(w, r, err)
		return
	}
	p.showRecord(w, r, http.StatusOK, &rec, &note{"warn", "The content is shown, and the audit says that you have seen it.", "It may hold personal data. It is gone when you leave the page."}, true)
}

// An event is one entry of the time line of a key.
type event struct {
	At    moment
	time  time.Time
	Kind  string // attempt, phase, evidence, audit, state or next
	Title string
	Text  string
	By    string
	ID    string
}

// timeline returns everything that is known of a key in the order of time. Due is what
// happens at its deadline.
func timeline(r *retrysafe.Record, entries []operator.Entry, due string) []event {
	var all []event
	add := func(at time.Time, kind, title, text, by, id string) {
		all = append(all, event{when(at, r.ReadAt), at, kind, title, visible(text), visible(by), id})
	}
	if !r.Readable() {
		return nil
	}
	first := "The first request arrived. Attempt 1 began."
	if len(r.Request) > 0 || r.State == retrysafe.StateAccepted {
		first = "The first request arrived and was stored for a worker."
	}
	add(r.CreatedAt, "attempt", first, "", "", "")
	noted, before := map[string]bool{}, retrysafe.StateInProgress
	for i := range r.Inquiry.Notes {
		n := &r.Inquiry.Notes[i]
		if n.By == traceAuthor {
			continue
		}
		noted[n.ID] = n.ID != ""
		kind := "evidence"
		if strings.HasPrefix(n.By, "operator ") {
			kind = "audit"
		}
		verb := "It became "
		if n.State == before {
			verb = "It stayed "
		}
		before = n.State
		add(n.At, kind, verb+stateName(n.State)+".", n.Text, n.By, n.ID)
	}
	for i := range entries {
		e := &entries[i]
		if noted[e.ID] {
			continue
		}
		text := e.Why
		if e.Text != "" {
			text += " — " + e.Text
		}
		add(e.At, "audit", fmt.Sprintf("%s: %s.", e.Verb, e.Outcome), text, "operator "+e.By, e.ID)
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.time.Compare(b.time) })
	all = append(all, phases(r)...)
	last := len(r.Inquiry.Notes) - 1
	told := last >= 0 && r.Inquiry.Notes[last].State == r.State && r.UpdatedAt.Sub(r.Inquiry.Notes[last].At) < time.Second
	if !told && r.UpdatedAt.After(r.CreatedAt) {
		add(r.UpdatedAt, "state", nowText(r), r.Reason, "", "")
	}
	add(r.Deadline, "next", due, "", "", "")
	return all
}

func nowText(r *retrysafe.Record) string {
	switch {
	case r.State == retrysafe.StateCompleted && r.Result != nil:
		return fmt.Sprintf("Attempt %d ended, and the answer was stored: %d.", r.Attempt, r.Result.Status)
	case r.State == retrysafe.StateInProgress:
		return fmt.Sprintf("Attempt %d runs; its lease was last renewed.", r.Attempt)
	default:
		return fmt.Sprintf("Last change: attempt %d, %s.", r.Attempt, stateText(r))
	}
}

// phases returns the steps of the operation. The record has their order and not their
// times.
func phases(r *retrysafe.Record) []event {
	steps, err := r.Checkpoint.Steps()
	if err != nil || len(steps) == 0 {
		if r.Checkpoint.IsZero() {
			return nil
		}
		return []event{{Kind: "phase", Title: "Phase " + visible(r.Checkpoint.Phase) + " is finished.", Text: count(len(r.Checkpoint.Data), "byte", "bytes") + " kept for the next attempt"}}
	}
	var all []event
	for i := range steps {
		s := &steps[i]
		e := event{Kind: "phase", Title: "Phase " + visible(s.Name) + " is finished."}
		switch {
		case s.Open:
			e.Title = "Effect " + visible(s.Name) + " was called, and its outcome is unknown."
			e.Text = "called " + count(s.Calls, "time", "times")
		case s.Effect:
			e.Title = "Effect " + visible(s.Name) + " is finished."
			e.Text = visible(s.ProviderRef)
		}
		all = append(all, e)
	}
	return all
}
