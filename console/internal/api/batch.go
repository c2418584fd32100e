package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

// batch returns the batch that a request asks for, and the digest of what it selects and
// does.
func (c *call) batch() (operator.Batch, *adminwire.BatchRequest, [sha256.Size]byte, error) {
	var in adminwire.BatchRequest
	var same [sha256.Size]byte
	if err := c.read(&in); err != nil {
		return operator.Batch{}, nil, same, err
	}
	f, err := in.Filter.Operator()
	if err != nil {
		return operator.Batch{}, nil, same, invalid("%v", err)
	}
	b := operator.Batch{ID: in.ID, By: c.by.Name, Why: in.Why, Verb: in.Verb, Filter: f, Rate: in.Rate}
	if in.Answer != nil {
		if b.Answer, err = givenAnswer(in.Answer); err != nil {
			return b, nil, same, err
		}
		b.Bodiless = in.Answer.NoBody
	}
	return b, &in, digestOf(c.by.Name, []any{in.Verb, in.Filter}), nil
}

// selectBatch is the dry run of a batch. What it has counted is kept for a while, so that
// exactly that can be changed.
func (a *API) selectBatch(c *call) (any, error) {
	b, in, same, err := c.batch()
	if err != nil {
		return nil, err
	}
	if in.Selection != "" || in.AtMost != 0 {
		return nil, invalid("selection and at_most are for a batch, not for its dry run")
	}
	sel, err := a.Service.Select(c.Context(), b)
	if err != nil {
		return nil, err
	}
	out := adminwire.Selection{ID: a.selections.add(same, sel), Count: sel.Count, Disputed: sel.Disputed, Unreadable: sel.Unreadable, Sample: []adminwire.Record{}}
	for i := range sel.Sample {
		out.Sample = append(out.Sample, adminwire.NewRecord(&sel.Sample[i], c.detail(), false))
	}
	return out, nil
}

// startBatch begins a batch, which goes on when the request has ended.
func (a *API) startBatch(c *call) (any, error) {
	b, in, same, err := c.batch()
	switch {
	case err != nil:
		return nil, err
	case in.Why == "":
		return nil, invalid("why is missing: the reason, for readers of the audit")
	case (in.Selection == "") == (in.AtMost <= 0):
		return nil, invalid("a batch takes either selection, from a dry run, or at_most, how many records it may change")
	}
	if b.ID == "" {
		b.ID = rand.Text()
	}
	what := *in
	what.Selection, what.AtMost, what.Rate = "", 0, 0 // they do not say what the batch does
	request := digestOf(c.by.Name, what)
	if j, ok := a.jobs.find(b.ID); ok && j.State == adminwire.JobRunning {
		return a.accepted(c, adminwire.Job{ID: b.ID}, request, nil)
	}
	sel, err := a.selection(c, &b, in, same)
	if err != nil {
		return nil, err
	}
	first := adminwire.Job{ID: b.ID, Verb: b.Verb, By: b.By, Counts: &operator.BatchReport{Counted: sel.Count}}
	return a.accepted(c, first, request, func(ctx context.Context, o *job) {
		b.Progress = func(r operator.BatchReport) { o.update(func(j *adminwire.Job) { j.Counts = &r }) }
		e, err := a.Service.Apply(ctx, b, sel)
		a.finish(o, c, e, err)
	})
}

// accepted begins a job, and answers with it.
func (a *API) accepted(c *call, first adminwire.Job, request [sha256.Size]byte, run func(context.Context, *job)) (any, error) {
	c.Request = c.WithContext(context.WithoutCancel(c.Context())) // the job outlives the request
	o, err := a.jobs.start(first, request, run)
	if err != nil {
		return nil, err
	}
	c.status = http.StatusAccepted
	return o.state(), nil
}

// selection returns what a batch changes: what its dry run has counted, or what matches
// now.
func (a *API) selection(c *call, b *operator.Batch, in *adminwire.BatchRequest, same [sha256.Size]byte) (*operator.Selection, error) {
	if in.Selection != "" {
		return a.selections.find(in.Selection, same)
	}
	sel, err := a.Service.Select(c.Context(), *b)
	if err != nil {
		return nil, err
	}
	if sel.Count > in.AtMost {
		return nil, &refusal{problem(http.StatusConflict, adminwire.CodeTooMany, fmt.Sprintf("%d records match, and at_most is %d; nothing was done", sel.Count, in.AtMost))}
	}
	return sel, nil
}

// selections are what dry runs have counted, for a while and up to a number of records.
type selections struct {
	mu  sync.Mutex
	all []heldSelection // the oldest first
}

type heldSelection struct {
	id   string
	same [sha256.Size]byte // stands for the author and what is selected
	sel  *operator.Selection
	at   time.Time
}

const (
	selectionAge  = 30 * time.Minute
	maxSelections = 16
	maxSelected   = 1_000_000 // records of all selections but the last
)

func newSelections() *selections { return &selections{} }

// add keeps a selection, and drops old ones.
func (s *selections) add(same [sha256.Size]byte, sel *operator.Selection) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, heldSelection{rand.Text(), same, sel, time.Now()})
	total, keep := 0, len(s.all)
	for keep > 0 {
		one := &s.all[keep-1]
		total += one.sel.Count
		if newest := keep == len(s.all); !newest && (total > maxSelected || len(s.all)-keep >= maxSelections || time.Since(one.at) > selectionAge) {
			break
		}
		keep--
	}
	clear(s.all[:keep])
	s.all = s.all[keep:]
	return s.all[len(s.all)-1].id
}

// find returns the selection of a dry run by the same person with the same verb and
// filter.
func (s *selections) find(id string, same [sha256.Size]byte) (*operator.Selection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if one := &s.all[i]; one.id == id && time.Since(one.at) <= selectionAge {
			if one.same != same {
				return nil, invalid("this selection was made by another person, or with another verb or filter")
			}
			return one.sel, nil
		}
	}
	return nil, &refusal{problem(http.StatusConflict, adminwire.CodeSelection, "this server does not know the selection: it is older than half an hour, or another server made it; make the dry run again. Nothing was done")}
}

// survey counts what a quarantine would set aside.
func (a *API) survey(c *call) (any, error) {
	q := adminwire.ParseQuery(c.URL.RawQuery)
	s := operator.Suspects{Since: q.Time("since"), Until: q.Time("until"), Scope: q.Text("scope"), SpareInTx: q.Bool("spare_in_tx")}
	if err := q.End(); err != nil {
		return nil, invalid("%v", err)
	}
	return a.Service.Survey(c.Context(), s)
}

// startQuarantine begins a quarantine, which goes on when the request has ended.
func (a *API) startQuarantine(c *call) (any, error) {
	var in adminwire.QuarantineRequest
	if err := c.read(&in); err != nil {
		return nil, err
	}
	if in.Why == "" {
		return nil, invalid("why is missing: the reason, for readers of the audit")
	}
	s := in.Operator(c.by.Name)
	if s.ID == "" {
		s.ID = rand.Text()
	}
	first := adminwire.Job{ID: s.ID, Verb: "quarantine", By: s.By, Report: new(operator.Report)}
	return a.accepted(c, first, digestOf(c.by.Name, in), func(ctx context.Context, o *job) {
		s.Progress = func(r operator.Report) { o.update(func(j *adminwire.Job) { j.Report = &r }) }
		e, err := a.Service.Quarantine(ctx, s)
		a.finish(o, c, e, err)
	})
}

// reconcile makes one pass of the background duties.
func (a *API) reconcile(c *call) (any, error) {
	var in adminwire.Duties
	if err := c.read(&in); err != nil {
		return nil, err
	}
	if a.Reconcile == nil {
		return nil, unsupported("this server has no background duties")
	}
	for _, name := range in.Only {
		if name != "sweep" && name != "reconcile" && name != "reap" {
			return nil, invalid("there is no duty %q; they are sweep, reconcile and reap", name)
		}
	}
	counts, err := a.Reconcile(c.Context(), in.Only)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, unsupported("this server has no resolver to ask")
	}
	if err != nil {
		return nil, err
	}
	return adminwire.Pass{Duties: counts}, nil
}
