package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

// pageKeys is how many keys a page of the list has.
const pageKeys = 50

const (
	// soon bounds how long a page of the list reads at first. For a state that few records
	// have, and that no index of the store finds, that may not be enough: the page then
	// leads to itself with listTime.
	soon     = 150 * time.Millisecond
	listTime = 20 * time.Second
)

// A keyRow is one key in a list.
type keyRow struct {
	State      string // as text, with its qualification
	Class      string // of the style sheet
	Key, Hash  string
	Scope      string
	Operation  string
	Reason     string
	Attempt    int
	Created    moment
	Changed    moment
	Deadline   moment
	LeaseLeft  string
	Running    string
	URL        string
	Unreadable bool
}

func (p *Pages) keyRow(r *retrysafe.Record) keyRow {
	p.scopes.add(r.Scope)
	row := keyRow{
		State: stateText(r), Class: stateClass(r), Key: visible(r.Key), Hash: retrysafe.HashKey(r.Key), Scope: scopeText(r.Scope),
		Operation: visible(r.Operation), Reason: visible(r.Reason), Attempt: r.Attempt,
		Created: when(r.CreatedAt, r.ReadAt), Changed: when(r.UpdatedAt, r.ReadAt), Deadline: when(r.Deadline, r.ReadAt),
		URL: p.keyURL(r.Ref), Unreadable: !r.Readable(),
	}
	if r.State == retrysafe.StateInProgress {
		row.Running, row.LeaseLeft = span(r.ReadAt.Sub(r.CreatedAt)), span(r.Deadline.Sub(r.ReadAt))
		if r.Due() {
			row.LeaseLeft = "ended"
		}
	}
	return row
}

func (p *Pages) keyURL(ref retrysafe.Ref) string {
	return p.link("/key", url.Values{"scope": {ref.Scope}, "key": {ref.Key}})
}

// scopeText returns a scope for people. A guard separates tenant, principal and operation
// by a character that is not printable.
func scopeText(scope string) string {
	parts := strings.Split(scope, "\x1f")
	for i := range parts {
		parts[i] = visible(parts[i])
	}
	return strings.Join(parts, " › ")
}

// stateText returns the state of a record with what an operator has to know about it.
func stateText(r *retrysafe.Record) string {
	name := strings.ReplaceAll(r.State.String(), "_", " ")
	switch {
	case !r.Readable():
		return "unreadable"
	case r.Inquiry.Disputed && r.State == retrysafe.StateUnknown:
		return name + ", disputed"
	case r.UnderReview():
		return name + ", answered"
	case r.State == retrysafe.StateUnknown && r.Inquiry.Dead:
		return name + ", dead"
	case (r.State == retrysafe.StateInProgress || r.State == retrysafe.StateAccepted) && r.Due():
		return name + ", due"
	default:
		return name
	}
}

func stateClass(r *retrysafe.Record) string {
	if !r.Readable() {
		return "unreadable"
	}
	return r.State.String()
}

// A filterForm is a filter as the form and the address have it.
type filterForm struct {
	Scope, Tenant, Operation, Reason, Status, Since, Until string
	States                                                 []stateChoice
	Due, Dead                                              bool
}

type stateChoice struct {
	Name, Text string
	On         bool
}

// parseFilter reads a filter from an address.
func parseFilter(q url.Values, now time.Time) (f operator.Filter, form filterForm, err error) {
	form = filterForm{
		Scope: q.Get("scope"), Tenant: q.Get("tenant"), Operation: q.Get("operation"), Reason: q.Get("reason"), Status: q.Get("status"),
		Since: q.Get("since"), Until: q.Get("until"), Due: q.Get("due") != "", Dead: q.Get("dead") != "",
	}
	f = operator.Filter{Scope: form.Scope, Tenant: form.Tenant, Operation: form.Operation, Reason: form.Reason, Due: form.Due, Dead: form.Dead}
	if form.Status != "" {
		if f.Status, err = strconv.Atoi(form.Status); err != nil || f.Status < 100 || f.Status > 999 {
			return f, form, fmt.Errorf("status %q is not a number between 100 and 999", form.Status)
		}
	}
	if f.Since, err = parseTime(form.Since, now); err != nil {
		return f, form, fmt.Errorf("since: %w", err)
	}
	if f.Until, err = parseTime(form.Until, now); err != nil {
		return f, form, fmt.Errorf("until: %w", err)
	}
	wanted := map[string]bool{}
	for _, s := range q["state"] {
		if s != "" {
			wanted[s] = true
		}
	}
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		name := s.String()
		form.States = append(form.States, stateChoice{name, strings.ReplaceAll(name, "_", " "), wanted[name]})
		if wanted[name] {
			f.States = append(f.States, s)
			delete(wanted, name)
		}
	}
	for s := range wanted {
		return f, form, fmt.Errorf("there is no state %q", s)
	}
	return f, form, nil
}

// parseTime reads a time of a filter: how long ago, as in 12h or 7d, or a time in UTC.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 100_000 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither how long ago, as in 12h or 7d, nor a time in UTC, as in 2026-01-31 15:04", text)
}

// filterQuery returns the parameters of an address that are the filter.
func filterQuery(q url.Values) url.Values {
	out := url.Values{}
	for _, name := range []string{"scope", "tenant", "operation", "reason", "status", "since", "until", "state", "due", "dead"} {
		for _, v := range q[name] {
			if v != "" {
				out.Add(name, v)
			}
		}
	}
	return out
}

// filterWords returns a filter for people.
func filterWords(q url.Values) string {
	var words []string
	for _, name := range []string{"state", "tenant", "scope", "operation", "reason", "status", "since", "until", "due", "dead"} {
		for _, v := range q[name] {
			switch {
			case v == "":
			case name == "due" || name == "dead":
				words = append(words, name)
			default:
				words = append(words, name+" "+scopeText(v))
			}
		}
	}
	if len(words) == 0 {
		return "all keys"
	}
	return strings.Join(words, ", ")
}

// keysData is what the list of keys shows.
type keysData struct {
	Form      filterForm
	Filtered  bool
	Words     string
	Rows      []keyRow
	Next      string // the address of the next page, if there is more
	First     string // the address of the first page, if this is not it
	Slow      bool   // the time was over before the page was there
	Patient   string // the address of the page with more time
	BatchURL  string
	ClearURL  string
	Shortcuts []menuItem
}

func (p *Pages) keys(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f, form, err := parseFilter(q, time.Now())
	d := keysData{Form: form, Words: filterWords(q), ClearURL: p.Prefix + "/keys", Shortcuts: p.shortcuts(q)}
	v := view{Title: "Keys", Page: "keys"}
	if err != nil {
		v.Note, v.Data = &note{"bad", "The filter is not complete", visible(err.Error())}, d
		p.show(w, r, http.StatusBadRequest, "keys", v)
		return
	}
	own := filterQuery(q)
	d.Filtered = len(own) > 0
	f.After, f.Limit = retrysafe.Ref{Scope: q.Get("after_scope"), Key: q.Get("after_key")}, pageKeys
	wait := soon
	if q.Get("wait") != "" {
		wait = listTime
	}
	page, err := within(r.Context(), p, wait, func(ctx context.Context) (operator.Page, error) { return p.Service.List(ctx, f) })
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		d.Slow = true
		if wait == soon {
			q.Set("wait", "1")
			d.Patient = p.link("/keys", q)
		}
	case err != nil:
		p.storeFailed(w, r, err)
		return
	}
	for i := range page.Records {
		d.Rows = append(d.Rows, p.keyRow(&page.Records[i]))
	}
	if f.After != (retrysafe.Ref{}) {
		d.First = p.link("/keys", own)
	}
	if page.More {
		next := filterQuery(q)
		next.Set("after_scope", page.Next.Scope)
		next.Set("after_key", page.Next.Key)
		d.Next = p.link("/keys", next)
	}
	if p.Batches != nil {
		d.BatchURL = p.link("/keys/batch", own)
	}
	v.Data = d
	p.show(w, r, http.StatusOK, "keys", v)
}

// within returns the result of a read of the store, or context.DeadlineExceeded when the
// time is over. A store may take longer to give up a read; the page does not wait for that.
func within[T any](ctx context.Context, p *Pages, wait time.Duration, read func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	step, cancel := context.WithTimeout(p.work.ctx, wait)
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	var none T
	if !p.work.begin(func() {
		v, err := read(step)
		done <- result{v, err}
	}) {
		return none, errors.New("the console is closed")
	}
	select {
	case r := <-done:
		if r.err != nil && step.Err() != nil {
			return none, step.Err()
		}
		return r.value, r.err
	case <-step.Done():
		return none, step.Err()
	}
}

// shortcuts are filters that operators need often.
func (p *Pages) shortcuts(q url.Values) []menuItem {
	own := filterQuery(q).Encode()
	var all []menuItem
	for _, s := range []struct {
		name string
		q    url.Values
	}{
		{"All", url.Values{}},
		{"Unknown", url.Values{"state": {"unknown"}}},
		{"Dead", url.Values{"dead": {"1"}}},
		{"In progress", url.Values{"state": {"in_progress"}}},
		{"Lease ended", url.Values{"state": {"in_progress"}, "due": {"1"}}},
		{"Accepted", url.Values{"state": {"accepted"}}},
		{"Completed", url.Values{"state": {"completed"}}},
	} {
		all = append(all, menuItem{s.name, p.link("/keys", s.q), s.q.Encode() == own})
	}
	return all
}
