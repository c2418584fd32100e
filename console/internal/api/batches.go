package api

import (
	"cmp"
	"context"
	"errors"

	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

// Select is the dry run of a batch for the pages of the console. What it has counted is
// kept for a while under the name that it returns, as that of a request to the API is.
func (a *API) Select(ctx context.Context, b operator.Batch) (*operator.Selection, string, error) {
	sel, err := a.Service.Select(ctx, b)
	if err != nil {
		return nil, "", err
	}
	return sel, a.selections.add(sameBatch(&b), sel), nil
}

// Start begins a batch on what its dry run has counted, and does not wait for its end. A
// batch that runs already is left alone.
func (a *API) Start(b operator.Batch, selection string) error {
	same := sameBatch(&b)
	if j, ok := a.jobs.find(b.ID); ok && j.State == adminwire.JobRunning {
		_, err := a.jobs.start(adminwire.Job{ID: b.ID}, same, nil)
		return err
	}
	sel, err := a.selections.find(selection, same)
	if err != nil {
		return err
	}
	first := adminwire.Job{ID: b.ID, Verb: b.Verb, By: b.By, Counts: &operator.BatchReport{Counted: sel.Count}}
	_, err = a.jobs.start(first, same, func(ctx context.Context, o *job) {
		b.Progress = func(r operator.BatchReport) { o.update(func(j *adminwire.Job) { j.Counts = &r }) }
		e, err := a.Service.Apply(ctx, b, sel)
		if err != nil {
			a.Logger.Warn("console: a batch stopped before its end", "id", b.ID, "by", b.By, "error", err)
		}
		o.update(func(j *adminwire.Job) {
			switch refused := (*operator.RefusedError)(nil); {
			case errors.As(err, &refused):
				j.State, j.Problem = adminwire.JobInterrupted, &adminwire.Problem{Detail: refused.Entry.Text}
			case err != nil:
				j.State, j.Problem = adminwire.JobInterrupted, &adminwire.Problem{Detail: "the store did not answer, or the server shuts down; the same batch goes on where it stopped"}
			default:
				j.State, j.Entry, j.Counts = adminwire.JobDone, &e, cmp.Or(e.Counts, j.Counts)
			}
		})
	})
	return err
}

// Job returns a batch of this process, or what the audit says of one. It is false if there
// is none.
func (a *API) Job(ctx context.Context, id string) (adminwire.Job, bool, error) {
	return a.jobOf(ctx, id)
}

// sameBatch stands for everything that a batch of the pages does.
func sameBatch(b *operator.Batch) [32]byte {
	return digestOf(b.By, []any{"pages", b.ID, b.Verb, b.Why, b.Filter, b.Answer, b.Rate})
}
