package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

const (
	// maxRunning bounds how many jobs run at once: each of them changes up to 64 records at
	// a time.
	maxRunning = 4
	// maxEnded bounds how many jobs that have ended are kept in memory. The audit has the
	// others.
	maxEnded = 100
)

// jobs are the batches and quarantines of this process. It owns their goroutines: they end
// by themselves, or by close.
type jobs struct {
	ctx  context.Context // of all jobs
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	all     map[string]*job
	ended   []string // the oldest first
	running int
	closed  bool
}

// A job is one batch or quarantine.
type job struct {
	request [sha256.Size]byte // stands for everything that the request asks for

	mu   sync.Mutex
	seen adminwire.Job // what a reader sees
}

func newJobs() *jobs {
	j := &jobs{all: map[string]*job{}}
	j.ctx, j.stop = context.WithCancel(context.Background())
	return j
}

// digestOf stands for a request: two that ask for different things have different ones.
func digestOf(by string, request any) [sha256.Size]byte {
	b, _ := json.Marshal([]any{by, request}) // it is made of plain values
	return sha256.Sum256(b)
}

// start runs a job under its ID and returns it. A job that runs under this ID is returned
// as it is, if it was asked for by the same request. With a nil run it is expected to run
// already.
func (j *jobs) start(first adminwire.Job, request [sha256.Size]byte, run func(context.Context, *job)) (*job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if old := j.all[first.ID]; old != nil && old.state().State == adminwire.JobRunning {
		if old.request != request {
			return nil, &refusal{problem(http.StatusConflict, adminwire.CodeMismatch, "another action runs under this id; leave it out for a new one")}
		}
		return old, nil
	}
	switch {
	case run == nil:
		return nil, &refusal{problem(http.StatusConflict, adminwire.CodeRunning, "it has ended just now; send the request again")}
	case j.closed:
		return nil, &refusal{problem(http.StatusServiceUnavailable, adminwire.CodeUnavailable, "the server shuts down; nothing was done")}
	case j.running >= maxRunning:
		return nil, &refusal{problem(http.StatusTooManyRequests, adminwire.CodeRunning, "other batches run; wait for their end. Nothing was done")}
	}
	first.State = adminwire.JobRunning
	one := &job{request: request, seen: first}
	j.all[first.ID] = one
	j.running++
	j.wg.Go(func() {
		defer j.end(first.ID)
		run(j.ctx, one)
	})
	return one, nil
}

// end counts a job as ended, and forgets the oldest of those that have.
func (j *jobs) end(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running--
	j.ended = append(j.ended, id)
	for len(j.ended) > maxEnded {
		if old := j.all[j.ended[0]]; old != nil && old.state().State != adminwire.JobRunning {
			delete(j.all, j.ended[0])
		}
		j.ended = j.ended[1:]
	}
}

// find returns what is known of a job.
func (j *jobs) find(id string) (adminwire.Job, bool) {
	j.mu.Lock()
	one := j.all[id]
	j.mu.Unlock()
	if one == nil {
		return adminwire.Job{}, false
	}
	return one.state(), true
}

func (j *jobs) close(ctx context.Context) error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	default:
		return errors.New("console: a batch does not stop; repeat it under its ID to find out how it ended")
	}
}

func (o *job) state() adminwire.Job {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen
}

// update changes what readers see.
func (o *job) update(f func(*adminwire.Job)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(&o.seen)
}

// finish notes how a job ended.
func (a *API) finish(o *job, c *call, e operator.Entry, err error) {
	var p *adminwire.Problem
	if err != nil {
		p = a.problemOf(c, &actionError{o.state().ID, err})
	}
	o.update(func(j *adminwire.Job) {
		if err != nil {
			j.State, j.Problem = adminwire.JobInterrupted, p
			return
		}
		j.State, j.Entry, j.Replayed = adminwire.JobDone, &e, e.Replayed
		j.Counts, j.Report = cmp.Or(e.Counts, j.Counts), cmp.Or(e.Report, j.Report)
	})
}

// showJob returns a job of this process, or what the audit says of one.
func (a *API) showJob(c *call) (any, error) {
	j, ok, err := a.jobOf(c.Context(), c.PathValue("id"))
	if err == nil && !ok {
		err = &refusal{problem(http.StatusNotFound, adminwire.CodeNotFound, "no batch and no quarantine has this id")}
	}
	return j, err
}

// jobOf returns a job of this process, or what the audit says of one.
func (a *API) jobOf(ctx context.Context, id string) (adminwire.Job, bool, error) {
	if j, ok := a.jobs.find(id); ok {
		return j, true, nil
	}
	list, err := a.Service.Audit(ctx, operator.AuditFilter{ID: id})
	if err != nil || len(list) == 0 || list[0].Counts == nil && list[0].Report == nil && list[0].Outcome != operator.StatusOpen {
		return adminwire.Job{}, false, err
	}
	e := &list[0]
	j := adminwire.Job{ID: e.ID, Verb: e.Verb, By: e.By, State: adminwire.JobDone, Counts: e.Counts, Report: e.Report, Entry: e}
	if e.Outcome == operator.StatusOpen {
		j.State, j.Entry = adminwire.JobOpen, nil
	}
	return j, true, nil
}
