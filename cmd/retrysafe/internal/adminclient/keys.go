package adminclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

// Facts describes the gateway's program and store.
func (c *Client) Facts(ctx context.Context) (s adminwire.Status, err error) {
	err = c.get(ctx, "/status", nil, &s)
	return s, err
}

// List returns a page of records.
func (c *Client) List(ctx context.Context, f operator.Filter) (page adminwire.ViewPage, err error) {
	f.Limit = min(f.Limit, adminwire.MaxLimit)
	q := url.Values{}
	adminwire.EncodeFilter(q, &f)
	var got adminwire.Page
	if err := c.get(ctx, "/keys", q, &got); err != nil {
		return page, err
	}
	if page.Records, err = views(got.Records); err != nil {
		return page, err
	}
	page.More = got.Next != ""
	page.Next, _ = adminwire.ParseRef(got.Next)
	return page, nil
}

func views(list []adminwire.Record) (all []adminwire.View, err error) {
	for i := range list {
		v, err := list[i].View()
		if err != nil {
			return nil, fmt.Errorf("the answer cannot be read: %w", err)
		}
		all = append(all, v)
	}
	return all, nil
}

// Show returns a record without its contents. If it cannot be read, it returns the readable
// part of it and [retrysafe.ErrUnreadable].
func (c *Client) Show(ctx context.Context, ref retrysafe.Ref) (adminwire.View, error) {
	var r adminwire.Record
	if err := c.get(ctx, keyPath(ref, ""), nil, &r); err != nil {
		return adminwire.View{}, err
	}
	v, err := r.View()
	if err == nil && r.Version == 0 {
		err = retrysafe.ErrUnreadable
	}
	return v, err
}

func keyPath(ref retrysafe.Ref, verb string) string {
	path := "/keys/" + adminwire.FormatRef(ref)
	if verb != "" {
		path += "/" + verb
	}
	return path
}

// Contents returns a record with its contents. The audit of the gateway says so.
func (c *Client) Contents(ctx context.Context, ref retrysafe.Ref, why string) (adminwire.View, error) {
	shown, err := c.Show(ctx, ref)
	if err != nil {
		return shown, err
	}
	var o adminwire.Outcome
	if err := c.post(ctx, keyPath(ref, "reveal"), adminwire.Action{Revision: shown.Revision, Why: why}, &o); err != nil {
		return adminwire.View{}, err
	}
	if o.Record == nil {
		return adminwire.View{}, errors.New("the gateway has revealed nothing")
	}
	return o.Record.View()
}

// Groups returns what needs a person.
func (c *Client) Groups(ctx context.Context, f operator.Filter) ([]operator.Group, error) {
	q := url.Values{}
	f.After, f.Limit = retrysafe.Ref{}, 0
	adminwire.EncodeFilter(q, &f)
	var got adminwire.Groups
	if err := c.get(ctx, "/groups", q, &got); err != nil {
		return nil, err
	}
	return got.Operator()
}

// Audit returns the actions of operators.
func (c *Client) Audit(ctx context.Context, f operator.AuditFilter) ([]operator.Entry, error) {
	q := url.Values{}
	for name, value := range map[string]string{"id": f.ID, "by": f.By, "verb": f.Verb, "ref": adminwire.FormatRef(f.Ref), "batch": f.Batch} {
		if value != "" {
			q.Set(name, value)
		}
	}
	adminwire.SetTime(q, "since", f.Since)
	adminwire.SetTime(q, "before", f.Before)
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(min(f.Limit, adminwire.MaxAudit)))
	}
	var got adminwire.Audit
	if err := c.get(ctx, "/audit", q, &got); err != nil {
		return nil, err
	}
	if len(got.Entries) == 0 {
		return nil, nil
	}
	return got.Entries, nil
}

// Act applies a verb to one record. Answer is for resolve and decline.
func (c *Client) Act(ctx context.Context, verb string, a operator.Action, answer *retrysafe.Result) (operator.Entry, error) {
	in := adminwire.Action{ID: a.ID, Revision: a.Revision, Why: a.Why, ProviderRef: a.ProviderRef}
	if answer != nil {
		in.Answer = adminwire.NewGivenAnswer(answer, a.Bodiless)
	}
	var o adminwire.Outcome
	if err := c.post(ctx, keyPath(a.Ref, verb), in, &o); err != nil {
		return operator.Entry{}, err
	}
	return o.Operator(), nil
}

func batchRequest(b *operator.Batch) adminwire.BatchRequest {
	in := adminwire.BatchRequest{Verb: b.Verb, Filter: adminwire.NewFilter(&b.Filter)}
	if b.Answer.Status != 0 {
		in.Answer = adminwire.NewGivenAnswer(&b.Answer, b.Bodiless)
	}
	return in
}

// Select counts what a batch would change. The gateway keeps the selection for a while.
func (c *Client) Select(ctx context.Context, b operator.Batch) (*adminwire.Counted, error) {
	var got adminwire.Selection
	if err := c.postWithin(ctx, readTimeout, "/selections", batchRequest(&b), &got); err != nil {
		return nil, err
	}
	sample, err := views(got.Sample)
	if err != nil {
		return nil, err
	}
	return &adminwire.Counted{Count: got.Count, Disputed: got.Disputed, Unreadable: got.Unreadable, Sample: sample, Of: got.ID}, nil
}

// Apply changes the records of a selection. The batch runs in the gateway: when ctx ends,
// it goes on there.
func (c *Client) Apply(ctx context.Context, b operator.Batch, of *adminwire.Counted) (operator.Entry, error) {
	in := batchRequest(&b)
	in.ID, in.Why, in.Rate = b.ID, b.Why, b.Rate
	in.Selection, _ = of.Of.(string)
	return c.run(ctx, "/batches", in, b.ID, func(j *adminwire.Job) {
		if b.Progress != nil && j.Counts != nil {
			b.Progress(*j.Counts)
		}
	})
}

// Survey counts what a quarantine would set aside.
func (c *Client) Survey(ctx context.Context, s operator.Suspects) (r operator.Report, err error) {
	q := url.Values{}
	adminwire.SetTime(q, "since", s.Since)
	adminwire.SetTime(q, "until", s.Until)
	if s.Scope != "" {
		q.Set("scope", s.Scope)
	}
	if s.SpareInTx {
		q.Set("spare_in_tx", "true")
	}
	err = c.get(ctx, "/survey", q, &r)
	return r, err
}

// Quarantine sets aside what is not final. It runs in the gateway: when ctx ends, it goes
// on there.
func (c *Client) Quarantine(ctx context.Context, s operator.Suspects) (operator.Entry, error) {
	return c.run(ctx, "/quarantines", adminwire.NewQuarantineRequest(&s), s.ID, func(j *adminwire.Job) {
		if s.Progress != nil && j.Report != nil {
			s.Progress(*j.Report)
		}
	})
}

const (
	// A job is asked about after firstPoll, and then less and less often.
	firstPoll, lastPoll = 50 * time.Millisecond, time.Second
	// patience is for how many questions in a row the gateway may not answer.
	patience = 10
)

// run begins a job in the gateway and waits for its end.
func (c *Client) run(ctx context.Context, path string, in any, id string, progress func(*adminwire.Job)) (operator.Entry, error) {
	var j adminwire.Job
	if err := c.post(ctx, path, in, &j); err != nil {
		return operator.Entry{}, err
	}
	for every, failed := firstPoll, 0; ; every = min(2*every, lastPoll) {
		progress(&j)
		switch j.State {
		case adminwire.JobDone:
			if j.Entry == nil {
				return operator.Entry{}, errors.New("the gateway does not say how it ended")
			}
			e := *j.Entry
			e.Replayed = j.Replayed
			return e, nil
		case adminwire.JobInterrupted:
			if j.Problem != nil {
				return operator.Entry{}, problemError(j.Problem)
			}
			return operator.Entry{}, errors.New("it was interrupted")
		case adminwire.JobOpen:
			return operator.Entry{}, errors.New("the gateway has ended meanwhile")
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return operator.Entry{}, fmt.Errorf("only the command has ended, and the gateway goes on: %w", ctx.Err())
		}
		if err := c.get(ctx, path+"/"+url.PathEscape(id), nil, &j); err != nil && ctx.Err() == nil {
			if failed++; failed > patience {
				return operator.Entry{}, err
			}
		} else {
			failed = 0
		}
	}
}

// Reconcile makes one pass of the named background duties of the gateway, or of all.
func (c *Client) Reconcile(ctx context.Context, only []string) (map[string]map[string]uint64, error) {
	var p adminwire.Pass
	if err := c.postWithin(ctx, readTimeout, "/reconcile", adminwire.Duties{Only: only}, &p); err != nil {
		return nil, err
	}
	return p.Duties, nil
}
