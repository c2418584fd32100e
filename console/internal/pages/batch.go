package pages

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

// batchData is what the pages before a batch show.
type batchData struct {
	Words      string
	KeysURL    string
	PreviewURL string
	ApplyURL   string
	Verbs      []batchVerb
	Chosen     batchVerb
	ID, Why    string
	Selection  string
	Rate       string
	Status     string
	Type, Body string

	Count, Disputed, Unreadable int
	Sample                      []keyRow
}

// A batchVerb is one choice of the form.
type batchVerb struct {
	Name, Title, After, Danger string
	Answer                     bool
	On                         bool
}

var batchVerbs = []batchVerb{
	{Name: "release", Title: "Release: they did not happen", After: "The next request with each key runs its operation.",
		Danger: "I have checked that none of them happened and that what ran them has ended. One that did happens twice."},
	{Name: "resolve", Title: "Resolve: they all happened", After: "Every retry gets the answer below. Nothing runs.", Answer: true,
		Danger: "One answer is right for all of them."},
	{Name: "decline", Title: "Decline: they were all refused for good", After: "Every retry gets the answer below. Nothing runs.", Answer: true,
		Danger: "One answer is right for all of them."},
	{Name: "redrive", Title: "Redrive: ask the resolvers again", After: "409 as before, until a resolver knows the outcome.",
		Danger: "The provider can answer this many questions now."},
	{Name: "quarantine", Title: "Quarantine: their stored state is in doubt", After: "409, and nothing runs, until evidence settles them.",
		Danger: "Keys that could run now are blocked until their outcome is known."},
}

// batchFrom returns the batch that a form and the filter in the address describe.
func batchFrom(r *http.Request) (operator.Batch, error) {
	f, _, err := parseFilter(r.URL.Query(), time.Now())
	if err != nil {
		return operator.Batch{}, fmt.Errorf("%w: %w", operator.ErrInvalid, err)
	}
	b := operator.Batch{
		ID: r.PostFormValue("id"), By: access.From(r.Context()).Name, Why: strings.TrimSpace(r.PostFormValue("why")), Verb: r.PostFormValue("verb"), Filter: f,
	}
	if b.ID == "" {
		return b, fmt.Errorf("%w: the form has no ID; load the page again", operator.ErrInvalid)
	}
	if b.Why == "" {
		return b, fmt.Errorf("%w: give the reason", operator.ErrInvalid)
	}
	if rate := r.PostFormValue("rate"); rate != "" {
		if b.Rate, err = strconv.Atoi(rate); err != nil || b.Rate < 0 {
			return b, fmt.Errorf("%w: the rate must be a number of keys in a second", operator.ErrInvalid)
		}
	}
	if b.Verb == "resolve" || b.Verb == "decline" {
		b.Answer, err = answerFrom(r)
	}
	return b, err
}

// freeze replaces how long ago by a time, so that the batch selects by the same times as
// its dry run.
func freeze(r *http.Request) {
	q := r.URL.Query()
	for _, name := range []string{"since", "until"} {
		if t, err := parseTime(q.Get(name), time.Now()); err == nil && !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	r.URL.RawQuery = q.Encode()
}

func (p *Pages) batchData(r *http.Request) batchData {
	own := filterQuery(r.URL.Query())
	d := batchData{
		Words: filterWords(own), KeysURL: p.link("/keys", own), PreviewURL: p.link("/keys/batch/preview", own), ApplyURL: p.link("/keys/batch/apply", own),
		Verbs: slices.Clone(batchVerbs), ID: rand.Text(), Status: "201", Type: "application/json",
	}
	verb := "" // none is chosen before a person has
	if r.Method == http.MethodPost {
		verb, d.Why, d.Rate = r.PostFormValue("verb"), r.PostFormValue("why"), r.PostFormValue("rate")
		d.ID, d.Status, d.Type, d.Body = r.PostFormValue("id"), r.PostFormValue("answer_status"), r.PostFormValue("answer_type"), r.PostFormValue("answer_body")
	}
	if operation := own.Get("operation"); operation != "" && !strings.Contains(operation, "*") && !p.lookedInto(operation) {
		d.Verbs = slices.DeleteFunc(d.Verbs, func(v batchVerb) bool { return v.Name == "redrive" })
	}
	for i := range d.Verbs {
		if d.Verbs[i].On = d.Verbs[i].Name == verb; d.Verbs[i].On {
			d.Chosen = d.Verbs[i]
		}
	}
	return d
}

func (p *Pages) batchForm(w http.ResponseWriter, r *http.Request) {
	if p.Batches == nil {
		p.fail(w, r, http.StatusNotFound, "This console runs no batches.")
		return
	}
	p.show(w, r, http.StatusOK, "batch", view{Title: "Act on everything that matches", Page: "keys", Data: p.batchData(r)})
}

// batchPreview is the dry run: it counts what the batch would change.
func (p *Pages) batchPreview(w http.ResponseWriter, r *http.Request) {
	if p.Batches == nil {
		p.fail(w, r, http.StatusNotFound, "This console runs no batches.")
		return
	}
	freeze(r)
	b, err := batchFrom(r)
	d := p.batchData(r)
	v := view{Title: "Act on everything that matches", Page: "keys"}
	var s *operator.Selection
	if err == nil {
		s, d.Selection, err = p.Batches.Select(r.Context(), b)
	}
	if err != nil {
		status, n := p.refusal(r, err)
		v.Note, v.Data = n, d
		p.show(w, r, status, "batch", v)
		return
	}
	d.Count, d.Disputed, d.Unreadable = s.Count, s.Disputed, s.Unreadable
	for i := range s.Sample {
		d.Sample = append(d.Sample, p.keyRow(&s.Sample[i]))
	}
	v.Data = d
	p.show(w, r, http.StatusOK, "preview", v)
}

func (p *Pages) batchApply(w http.ResponseWriter, r *http.Request) {
	if p.Batches == nil {
		p.fail(w, r, http.StatusNotFound, "This console runs no batches.")
		return
	}
	b, err := batchFrom(r)
	if err == nil && r.PostFormValue("confirm") != "yes" {
		err = fmt.Errorf("%w: %w", operator.ErrInvalid, errUnconfirmed)
	}
	if err == nil {
		if err = p.Batches.Start(b, r.PostFormValue("selection")); err != nil && !errors.Is(err, operator.ErrInvalid) {
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
	}
	p.changed()
	if err != nil {
		status, n := p.refusal(r, err)
		p.show(w, r, status, "batch", view{Title: "Act on everything that matches", Page: "keys", Note: n, Data: p.batchData(r)})
		return
	}
	secure(w)
	http.Redirect(w, r, p.Prefix+"/batches/"+url.PathEscape(b.ID), http.StatusSeeOther)
}

// progressData is what the page of a batch shows.
type progressData struct {
	ID, Verb, By, Why, Words string
	Report                   operator.BatchReport
	Handled                  int
	Percent                  int
	Over, Elsewhere          bool
	Problem                  string
	AuditURL                 string
}

func (p *Pages) batchProgress(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if p.Batches == nil {
		p.fail(w, r, http.StatusNotFound, "This console runs no batches.")
		return
	}
	j, ok, err := p.Batches.Job(r.Context(), id)
	switch {
	case err != nil:
		p.storeFailed(w, r, err)
		return
	case !ok || j.Counts == nil:
		p.fail(w, r, http.StatusNotFound, "There is no batch with this ID.")
		return
	}
	c := *j.Counts
	d := progressData{
		ID: visible(id), Verb: visible(j.Verb), By: visible(j.By), Report: c, Handled: c.Done + c.Changed + c.Refused, Over: j.State != adminwire.JobRunning,
		Elsewhere: j.State == adminwire.JobOpen, AuditURL: p.link("/audit", url.Values{"batch": {id}}),
	}
	if c.Counted > 0 {
		d.Percent = min(100, 100*d.Handled/c.Counted)
	} else if d.Over {
		d.Percent = 100
	}
	if d.Over {
		p.changed()
	}
	if e := j.Entry; e != nil {
		d.Why, d.Words = visible(e.Why), visible(c.Filter)
	}
	if j.Problem != nil {
		d.Problem = visible(j.Problem.Detail)
	}
	p.show(w, r, http.StatusOK, "progress", view{Title: "Batch " + d.Verb, Page: "keys", Data: d})
}
