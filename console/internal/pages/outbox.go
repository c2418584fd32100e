package pages

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// depthView is how full the outbox is.
type depthView struct {
	Waiting, Dead string
	AnyDead       bool
	Oldest        string
	OldestDead    string
	Problem       string
}

// depth returns how full the outbox is, or nil if that is not known here.
func (p *Pages) depth(ctx context.Context) *depthView {
	if p.Depth == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	d, err := p.Depth(ctx)
	if err != nil {
		return &depthView{Problem: "not counted in time"}
	}
	v := &depthView{Waiting: number(d.Waiting), Dead: number(d.Dead), AnyDead: d.Dead > 0}
	if d.Waiting > 0 {
		v.Oldest = span(d.Oldest)
	}
	if d.Dead > 0 {
		v.OldestDead = span(d.OldestDead)
	}
	return v
}

// A letterRow is a message in a list.
type letterRow struct {
	ID                int64
	Topic, Group, Why string
	Tries             int
	Enqueued, Died    moment
	Age               string
	URL               string
}

func (p *Pages) letterRow(l *outbox.DeadLetter) letterRow {
	now := l.Enqueued.Add(l.Age)
	row := letterRow{
		ID: l.ID, Topic: visible(l.Topic), Group: visible(l.Group), Why: visible(l.Why), Tries: l.Tries, Enqueued: when(l.Enqueued, now), Age: span(l.Age),
		URL: p.Prefix + "/outbox/letters/" + strconv.FormatInt(l.ID, 10),
	}
	row.Died = when(l.Died, now)
	if l.Err != nil {
		row.Why = visible("cannot be read: " + l.Err.Error())
	}
	return row
}

// outboxData is what the page of the outbox shows.
type outboxData struct {
	None        bool
	Depth       *depthView
	Dead        []letterRow
	Next        string
	Failing     []letterRow
	FailingNone bool // the store cannot list them
}

const pageLetters = 50

func (p *Pages) outbox(w http.ResponseWriter, r *http.Request) {
	d := outboxData{None: p.Letters == nil, Depth: p.depth(r.Context())}
	v := view{Title: "Outbox and dead letters", Page: "outbox"}
	if d.None {
		v.Data = d
		p.show(w, r, http.StatusOK, "outbox", v)
		return
	}
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	dead, err := p.Letters.List(ctx, after, pageLetters)
	if err != nil {
		p.storeFailed(w, r, err)
		return
	}
	for i := range dead {
		d.Dead = append(d.Dead, p.letterRow(&dead[i]))
	}
	if len(dead) == pageLetters {
		d.Next = p.link("/outbox", url.Values{"after": {strconv.FormatInt(dead[len(dead)-1].ID, 10)}})
	}
	failing, err := p.Letters.Failing(ctx, 0, pageLetters)
	d.FailingNone = errors.Is(err, errors.ErrUnsupported)
	for i := range failing {
		d.Failing = append(d.Failing, p.letterRow(&failing[i]))
	}
	v.Data = d
	p.show(w, r, http.StatusOK, "outbox", v)
}

// letterData is what the page of one message shows.
type letterData struct {
	Row      letterRow
	Failing  bool // it is tried again; otherwise it is a dead letter
	Revision int64
	Key      string
	Settles  string
	KeyURL   string
	Provider string
	Payload  string
	Actions  []action

	RevealURL, RevealID string
	Shown               bool
	Content             string
	Headers             []string
}

func (p *Pages) letter(w http.ResponseWriter, r *http.Request) {
	p.showLetter(w, r, http.StatusOK, nil)
}

func (p *Pages) showLetter(w http.ResponseWriter, r *http.Request, status int, n *note) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || p.Letters == nil {
		p.fail(w, r, http.StatusNotFound, "There is no such letter.")
		return
	}
	l, failing, err := p.findLetter(r.Context(), id)
	if err != nil {
		if !errors.Is(err, retrysafe.ErrNotFound) {
			p.storeFailed(w, r, err)
			return
		}
		if n == nil {
			n = &note{"bad", "There is no such letter: it was delivered, redriven or dropped.", ""}
		}
		p.show(w, r, http.StatusNotFound, "message", view{Title: n.Title, Note: n})
		return
	}
	p.showFound(w, r, status, &l, failing, n, false)
}

// showFound shows the page of a message as it was read.
func (p *Pages) showFound(w http.ResponseWriter, r *http.Request, status int, l *outbox.DeadLetter, failing bool, n *note, reveal bool) {
	id := l.ID
	d := letterData{Row: p.letterRow(l), Failing: failing, Revision: l.Revision, Key: visible(l.Key), Provider: visible(l.ProviderRef), Payload: count(len(l.Payload), "byte", "bytes")}
	if l.Settles != nil {
		d.Settles, d.KeyURL = visible(l.Settles.Key), p.keyURL(l.Settles.Ref)
	}
	if access.From(r.Context()).May(access.RoleAct) {
		for _, a := range letterActions(failing) {
			a.Letter, a.ID, a.Revision, a.URL = true, rand.Text(), l.Revision, fmt.Sprintf("%s/outbox/letters/%d/act/%s", p.Prefix, id, a.Verb)
			d.Actions = append(d.Actions, a)
		}
		d.RevealURL, d.RevealID = fmt.Sprintf("%s/outbox/letters/%d/reveal", p.Prefix, id), rand.Text()
	}
	if reveal {
		d.Shown, d.Content = true, bodyText(l.Payload)
		for _, name := range slices.Sorted(maps.Keys(l.Header)) {
			d.Headers = append(d.Headers, visible(name)+": "+visible(l.Header[name]))
		}
	}
	p.show(w, r, status, "letter", view{Title: "Letter " + strconv.FormatInt(id, 10), Page: "outbox", Note: n, Data: d, Here: fmt.Sprintf("%s/outbox/letters/%d", p.Prefix, id)})
}

// findLetter returns a dead letter, or a message that fails.
func (p *Pages) findLetter(ctx context.Context, id int64) (outbox.DeadLetter, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	l, err := p.Letters.Show(ctx, id)
	if err == nil {
		return l, false, nil
	}
	if list, no := p.Letters.Failing(ctx, id-1, 1); no == nil && len(list) == 1 && list[0].ID == id {
		return list[0], true, nil
	}
	return l, false, err
}

func letterActions(failing bool) []action {
	if failing {
		return []action{{
			Verb: "skip", Title: "Skip it", When: "It cannot be delivered, and the later messages of its group wait for it.",
			After: "It becomes a dead letter, and its group goes on without it.", Danger: "I know that later messages of its group arrive before it.",
		}}
	}
	return []action{
		{Verb: "redrive", Title: "Send it again", When: "What stopped it is repaired.", After: "It is sent under its old key, behind all others of its group."},
		{
			Verb: "force", Title: "Send it again although its receiver may have forgotten its key", When: "You have checked that it did not arrive.",
			After: "It is sent again, and its age starts anew.", Danger: "I have checked that the receiver does not have it. If it does, the effect happens twice.",
		},
		{Verb: "drop", Title: "Drop it for good", When: "It must never be sent.", After: "Its audit entry is all that is left.", Danger: "I know that the message is deleted and never sent."},
	}
}

// letterFrom returns the action that a form describes.
func letterFrom(r *http.Request) (operator.DeadLetterAction, error) {
	a := operator.DeadLetterAction{ID: r.PostFormValue("id"), By: access.From(r.Context()).Name, Why: strings.TrimSpace(r.PostFormValue("why"))}
	var err, no error
	a.Letter, no = strconv.ParseInt(r.PathValue("id"), 10, 64)
	a.Revision, err = strconv.ParseInt(r.PostFormValue("revision"), 10, 64)
	if err != nil || no != nil || a.ID == "" {
		return a, fmt.Errorf("%w: the form has no ID or no revision; load the page again", operator.ErrInvalid)
	}
	return a, nil
}

// revealLetter shows the payload of a message after the audit has an entry of it.
func (p *Pages) revealLetter(w http.ResponseWriter, r *http.Request) {
	if p.Letters == nil {
		p.fail(w, r, http.StatusNotFound, "There is no such letter.")
		return
	}
	a, err := letterFrom(r)
	var l outbox.DeadLetter
	if err == nil {
		l, _, err = p.Letters.Reveal(context.WithoutCancel(r.Context()), a)
	}
	if err != nil {
		status, n := p.refusal(r, err)
		p.showLetter(w, r, status, n)
		return
	}
	n := &note{"warn", "The payload is shown, and the audit says that you have seen it.", "It may hold personal data. It is gone when you leave the page."}
	p.showFound(w, r, http.StatusOK, &l, l.Died.IsZero(), n, true)
}

func (p *Pages) actLetter(w http.ResponseWriter, r *http.Request) {
	if p.Letters == nil {
		p.fail(w, r, http.StatusNotFound, "There is no such letter.")
		return
	}
	verb := r.PathValue("verb")
	a, err := letterFrom(r)
	a.Force = verb == "force"
	if err == nil && verb != "redrive" && r.PostFormValue("confirm") != "yes" {
		err = fmt.Errorf("%w: %w", operator.ErrInvalid, errUnconfirmed)
	}
	if err == nil {
		err = p.carryOutLetter(context.WithoutCancel(r.Context()), verb, a)
	}
	if errors.Is(err, errNoVerb) {
		p.fail(w, r, http.StatusNotFound, "There is no such action.")
		return
	}
	if err != nil {
		status, n := p.refusal(r, err)
		p.showLetter(w, r, status, n)
		return
	}
	secure(w)
	http.Redirect(w, r, p.Prefix+"/outbox", http.StatusSeeOther)
}

var errNoVerb = errors.New("there is no such action")

func (p *Pages) carryOutLetter(ctx context.Context, verb string, a operator.DeadLetterAction) (err error) {
	switch verb {
	case "redrive", "force":
		_, err = p.Letters.Redrive(ctx, a)
	case "drop":
		_, err = p.Letters.Drop(ctx, a)
	case "skip":
		_, err = p.Letters.Skip(ctx, a)
	default:
		err = errNoVerb
	}
	return err
}

// reconciliationData is what the page of the reconciliation shows.
type reconciliationData struct {
	AtLeast bool // there are more than were counted
	Checks  []Check
	Groups  []groupRow
	Ready   bool
	Stale   string
	Next    []keyRow // those that are asked about next
	Total   string
	Asked   string
	More    bool
}

// reconciliation shows unknown outcomes in the order in which resolvers are asked.
func (p *Pages) reconciliation(w http.ResponseWriter, r *http.Request) {
	var o overviewData
	brief, stop := context.WithTimeout(r.Context(), patience)
	defer stop()
	groups := p.groups.get(brief)
	o.fillGroups(p, &groups)
	d := reconciliationData{Ready: o.Ready, Stale: o.Stale, AtLeast: o.AtLeast}
	for _, c := range p.checks(brief) {
		if c.Name != "outbox" {
			d.Checks = append(d.Checks, c)
		}
	}
	for _, g := range o.Groups {
		if g.State == retrysafe.StateUnknown.String() {
			d.Groups = append(d.Groups, g)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	page, err := p.Service.List(ctx, operator.Filter{States: []retrysafe.State{retrysafe.StateUnknown}, Limit: maxRunning})
	if err != nil {
		p.storeFailed(w, r, err)
		return
	}
	d.More = page.More
	d.Total = number(len(page.Records))
	page.Records = slices.DeleteFunc(page.Records, func(r retrysafe.Record) bool { return !p.lookedInto(r.Operation) })
	for _, rec := range soonest(page.Records, shownNext) {
		d.Next = append(d.Next, p.keyRow(&rec))
	}
	p.show(w, r, http.StatusOK, "reconciliation", view{Title: "Reconciliation", Page: "reconciliation", Data: d})
}

const shownNext = 20

// auditData is what the page of the audit shows.
type auditData struct {
	By, Verb, Batch, Since, Before string
	Verbs                          []stateChoice
	Rows                           []auditRow
	Next, First                    string
	Filtered                       bool
}

type auditRow struct {
	At                           moment
	By, Verb, Why, Outcome, Text string
	Class                        string
	Hash, KeyURL                 string
	From, To, ID                 string
	BatchURL, Counts             string
}

var auditVerbs = []string{"resolve", "decline", "release", "redrive", "forget", "erase", "quarantine", "reveal", "redrive letter", "drop letter", "skip message"}

const auditTime = 10 * time.Second

func (p *Pages) audit(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d := auditData{By: q.Get("by"), Verb: q.Get("verb"), Batch: q.Get("batch"), Since: q.Get("since"), Before: q.Get("before")}
	f := operator.AuditFilter{By: d.By, Verb: d.Verb, Batch: d.Batch, Limit: pageKeys}
	for _, name := range auditVerbs {
		d.Verbs = append(d.Verbs, stateChoice{name, name, name == d.Verb})
	}
	v := view{Title: "Audit", Page: "audit"}
	var err error
	if f.Since, err = parseTime(d.Since, time.Now()); err == nil {
		f.Before, err = parseTime(d.Before, time.Now())
	}
	if err != nil {
		v.Note, v.Data = &note{"bad", "The filter is not complete", visible(err.Error())}, d
		p.show(w, r, http.StatusBadRequest, "audit", v)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), auditTime)
	defer cancel()
	entries, err := p.Service.Audit(ctx, f)
	if err != nil {
		p.storeFailed(w, r, err)
		return
	}
	now := time.Now()
	for i := range entries {
		d.Rows = append(d.Rows, p.auditRow(&entries[i], now))
	}
	own := url.Values{}
	set(own, "by", d.By)
	set(own, "verb", d.Verb)
	set(own, "batch", d.Batch)
	set(own, "since", d.Since)
	d.Filtered = len(own) > 0 || d.Before != ""
	if d.Before != "" {
		d.First = p.link("/audit", own)
	}
	if len(entries) >= pageKeys {
		own.Set("before", entries[len(entries)-1].At.UTC().Format(time.RFC3339Nano))
		d.Next = p.link("/audit", own)
	}
	v.Data = d
	p.show(w, r, http.StatusOK, "audit", v)
}

func (p *Pages) auditRow(e *operator.Entry, now time.Time) auditRow {
	row := auditRow{
		At: when(e.At, now), By: visible(e.By), Verb: visible(e.Verb), Why: visible(e.Why), Outcome: string(e.Outcome), Text: visible(e.Text), ID: e.ID,
		Class: map[operator.Status]string{operator.StatusDone: "ok", operator.StatusRefused: "bad"}[e.Outcome],
	}
	if e.Ref.Key != "" && !e.Ref.IsSystem() {
		row.Hash, row.KeyURL = retrysafe.HashKey(e.Ref.Key), p.keyURL(e.Ref)
	} else if e.Ref.Key != "" {
		row.Hash = "letter " + visible(e.Ref.Key)
	}
	if e.From.State != 0 || e.From.Revision != 0 {
		row.From, row.To = stateName(e.From.State), stateName(e.To.State)
	}
	if e.From.State == 0 {
		row.From = ""
	}
	if e.To.State == 0 {
		row.To = ""
	}
	if c := e.Counts; c != nil {
		row.Counts = fmt.Sprintf("%s of %s done, %s changed meanwhile, %s refused", number(c.Done), number(c.Counted), number(c.Changed), number(c.Refused))
		row.BatchURL = p.link("/audit", url.Values{"batch": {e.ID}})
	}
	if e.Report != nil {
		row.Counts = fmt.Sprintf("%s of %s records quarantined", number(e.Report.Quarantined), number(e.Report.Looked))
	}
	return row
}
