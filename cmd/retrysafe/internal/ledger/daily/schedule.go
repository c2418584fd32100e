package daily

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/feed"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

const (
	// catchUp is how many days are looked back for one that was not compared.
	catchUp = 7
	// keepResult is how long the result of a day is stored: longer than days are looked back for.
	keepResult = (catchUp + 3) * 24 * time.Hour
	// longest bounds one comparison.
	longest = 12 * time.Hour

	// lookForList is how often a list that is not there yet is looked for; afterFailure is the pause after any other
	// failure, busyPause while another node compares.
	lookForList  = time.Minute
	afterFailure = 5 * time.Minute
	busyPause    = 30 * time.Second
	// longestPause bounds the pause until the next look: the machine's clock may be set.
	longestPause = 10 * time.Minute
)

// Stats are what is known of one job.
type Stats struct {
	Name string
	// Compared and Failed count the attempts of this process.
	Compared, Failed uint64
	// Tried is when an attempt of this process last ended, in whichever way.
	Tried time.Time
	// Last is the result of the latest day that was compared, by any node. It is zero if none is known.
	Last Result
}

// A Scheduler compares ledgers when their days are over.
type Scheduler struct {
	jobs   []*Job
	engine *retrysafe.Engine
	logger *slog.Logger

	mu    sync.Mutex
	stats []Stats          // one for each job
	told  []map[Day]string // the last failure of each day of each job, so that it is logged once
}

// New returns a scheduler over a store. Jobs that are never due are left out. It starts nothing, but makes sure that
// reports can be written. Logger may be nil.
func New(s retrysafe.Store, jobs []*Job, logger *slog.Logger) (*Scheduler, error) {
	if logger == nil {
		logger = slog.Default()
	}
	d := &Scheduler{logger: logger}
	for _, j := range jobs {
		if err := j.Check(); err != nil {
			return nil, fmt.Errorf("ledger %s: %w", printable.Text(j.Name), err)
		}
		if j.At < 0 {
			continue
		}
		if err := j.checkDirectory(); err != nil {
			return nil, fmt.Errorf("ledger %s: %w", printable.Text(j.Name), err)
		}
		d.jobs, d.stats, d.told = append(d.jobs, j), append(d.stats, Stats{Name: j.Name}), append(d.told, map[Day]string{})
	}
	// A comparison changes nothing but its reports, which have the same names each time: it may run again.
	engine, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{
		Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, MaxRun: longest, Retention: keepResult,
	}})
	if err != nil {
		return nil, err
	}
	d.engine = engine
	return d, nil
}

// Stats returns what is known of each job.
func (d *Scheduler) Stats() []Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.stats)
}

// Run compares each job's days when they are due, until ctx ends.
func (d *Scheduler) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for i := range d.jobs {
		all.Go(func() {
			for ctx.Err() == nil {
				pause := time.NewTimer(d.turn(ctx, i))
				select {
				case <-ctx.Done():
				case <-pause.C:
				}
				pause.Stop()
			}
		})
	}
	all.Wait()
	const last = 5 * time.Second
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), last)
	defer cancel()
	_ = d.engine.Drain(stop) // a day whose result is not stored is compared again
	return nil
}

// turn compares the days of a job that are due, and returns how long to wait until the next look.
func (d *Scheduler) turn(ctx context.Context, i int) time.Duration {
	j := d.jobs[i]
	latest, next := j.latestDue(time.Now())
	pause := min(longestPause, max(time.Second, time.Until(next)))
	days, err := d.open(ctx, i, latest)
	if err != nil {
		d.failed(ctx, i, latest, fmt.Errorf("read the store: %w", err))
		return min(pause, afterFailure)
	}
	for _, day := range days {
		err := d.compare(ctx, i, day)
		switch {
		case err == nil:
		case errors.Is(err, retrysafe.ErrInFlight):
			pause = min(pause, busyPause)
		case errors.Is(err, feed.ErrNotYet):
			d.failed(ctx, i, day, err)
			pause = min(pause, lookForList)
		default:
			d.failed(ctx, i, day, err)
			pause = min(pause, afterFailure)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return pause
}

// latestDue returns the latest day that is over and whose time has come, and when the next one's does.
func (j *Job) latestDue(now time.Time) (Day, time.Time) {
	day := dayOf(now.In(j.zone())).add(-1)
	if due := day.add(1).at(j.At, j.zone()); now.Before(due) {
		return day.add(-1), due
	}
	return day, day.add(2).at(j.At, j.zone())
}

// call is the operation that compares a day.
func (j *Job) call(day Day) (retrysafe.Call, error) {
	ref := retrysafe.Ref{Scope: retrysafe.SystemScope("ledger"), Key: j.Name + "/" + day.String()}
	c := retrysafe.Call{Ref: ref, Operation: "compare a ledger"}
	var err error
	c.Fingerprint, err = retrysafe.FingerprintJSON(ref.Scope, c.Operation, []string{j.Name, day.String()})
	return c, err
}

// open returns the days that have to be compared, the earliest first. Without lists of single days that is the latest
// one; otherwise it is each day without a result after the first of the last days that has one, as after an outage or
// where a list comes later than that of the next day. Of earlier days only those that were tried are made up for.
func (d *Scheduler) open(ctx context.Context, i int, latest Day) ([]Day, error) {
	j, back := d.jobs[i], 1
	if j.Theirs.Daily() {
		back = catchUp
	}
	var open []Day
	done := false // a day before is compared
	for n := back - 1; n >= 0; n-- {
		day := latest.add(-n)
		result, tried, err := d.resultOf(ctx, j, day)
		switch {
		case err != nil:
			return nil, err
		case result != nil:
			d.note(i, *result)
			done = true
		case done || tried || n == 0:
			open = append(open, day)
		}
	}
	return open, nil
}

// resultOf returns the result of a day, or nil, and whether the day was tried.
func (d *Scheduler) resultOf(ctx context.Context, j *Job, day Day) (*Result, bool, error) {
	c, err := j.call(day)
	if err != nil {
		return nil, false, err
	}
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := d.engine.Store().Load(ctx, c.Ref)
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case r.State != retrysafe.StateCompleted || r.Result == nil:
		return nil, true, nil
	}
	result, err := decode(r.Result.Body)
	return result, true, err
}

func decode(body []byte) (*Result, error) {
	result := new(Result)
	if err := json.Unmarshal(body, result); err != nil {
		return nil, fmt.Errorf("%w: the result of a ledger: %w", retrysafe.ErrUnreadable, err)
	}
	return result, nil
}

// compare compares a day, unless another node does or has done so.
func (d *Scheduler) compare(ctx context.Context, i int, day Day) error {
	j := d.jobs[i]
	work, err := j.Find(ctx, j.PeriodOf(day)) // before the day is reserved: where the list is not there, nothing is written
	if err != nil {
		return err
	}
	call, err := j.call(day)
	if err != nil {
		return err
	}
	out, err := d.engine.Do(ctx, call, func(run context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
		run, cancel := context.WithCancelCause(run)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })() // the operation's own context outlives its caller
		body, err := d.write(run, work)
		return retrysafe.Result{Status: 200, Body: body}, err
	})
	if err != nil {
		return err
	}
	result, err := decode(out.Body)
	if err != nil {
		return err
	}
	if !out.Replayed {
		d.compared(i, day, result)
	}
	d.note(i, *result)
	return nil
}

// write compares and publishes the reports. Only then the day is done.
func (d *Scheduler) write(ctx context.Context, c *Comparison) ([]byte, error) {
	out, err := c.openFiles()
	if err != nil {
		return nil, err
	}
	defer out.discard()
	result, err := c.Run(ctx, d.engine.Store(), out)
	if err != nil {
		return nil, err
	}
	if err := out.publish(); err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// compared counts and logs a day that this process has compared.
func (d *Scheduler) compared(i int, day Day, r *Result) {
	d.mu.Lock()
	d.stats[i].Compared++
	d.stats[i].Tried = r.Ended
	delete(d.told[i], day)
	d.mu.Unlock()
	log := d.logger.Info
	if !r.Summary.Clean() {
		log = d.logger.Warn
	}
	log("retrysafe: ledger compared", "ledger", printable.Value(r.Ledger), "day", r.Day, "found", r.Summary.String(), "reports", d.jobs[i].Directory)
}

// note keeps the result of the latest day.
func (d *Scheduler) note(i int, r Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := &d.stats[i]; r.Day >= s.Last.Day {
		s.Last = r
	}
}

// failed counts and logs a failure; the same one again is not logged.
func (d *Scheduler) failed(ctx context.Context, i int, day Day, err error) {
	if ctx.Err() != nil {
		return // the process ends; another node goes on
	}
	text := err.Error()
	d.mu.Lock()
	again := d.told[i][day] == text
	d.told[i][day] = text
	maps.DeleteFunc(d.told[i], func(told Day, _ string) bool { return told.start(time.UTC).Before(day.add(-catchUp).start(time.UTC)) })
	if !again || !errors.Is(err, feed.ErrNotYet) { // a list that is waited for is one failure, however often it is looked for
		d.stats[i].Failed++
	}
	d.stats[i].Tried = time.Now()
	d.mu.Unlock()
	if !again {
		d.logger.Error("retrysafe: ledger not compared, it is tried again", "ledger", printable.Value(d.jobs[i].Name), "day", day.String(), "error", printable.Text(err.Error()))
	}
}
