package field

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

// judge holds all that has happened to what was promised, after the faults have
// stopped.
func (f *field) judge(ctx context.Context) error {
	if err := f.alive(); err != nil {
		return err
	}
	if err := f.atRest(ctx); err != nil {
		return err
	}
	if err := f.replays(ctx); err != nil {
		return err
	}
	if err := f.effects(ctx); err != nil {
		return err
	}
	f.r.Count("keys", len(f.jobs))
	return f.alive()
}

// atRest waits until nothing is in flight any more. (L1)
func (f *field) atRest(ctx context.Context) error {
	var left []retrysafe.Record
	for until := time.Now().Add(bound); time.Now().Before(until); prove.Pause(ctx, shortRest) {
		var err error
		left, err = f.db.Store.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateAccepted}})
		if err != nil {
			return fmt.Errorf("list what is in flight: %w", err)
		}
		if len(left) == 0 && f.provider.Idle() {
			return nil
		}
	}
	for i := range left {
		f.r.Violatef("L1", left[i].Key, "the key is still %s, %v after the last fault", left[i].State, bound)
	}
	return nil
}

// replays asks each node for each job again. An answer that a client was shown once is
// given by every node; without one the client is told why. (S2, S3, S4, S9)
func (f *field) replays(ctx context.Context) error {
	each(len(f.jobs), 32, func(i int) {
		j := f.jobs[i]
		for _, p := range f.nodes {
			_, answered := j.answered()
			got := f.askPatiently(ctx, j, p)
			switch {
			case ctx.Err() != nil:
				return
			case got.class == final, got.class == refused, f.noErrors && got.status >= 500: // shown, or told already
			case answered:
				f.accusef(j, "S4", "an answer was shown, and now %s says %d %s", p.task.Name, got.status, got.code)
			case got.class == unknown && j.mode == effect.Unprotected:
			default:
				f.accusef(j, "L3", "there is no answer, and %s says %d %s", p.task.Name, got.status, got.code)
			}
		}
		if _, answered := j.answered(); !answered && j.mode == effect.Unprotected {
			f.r.Count("keys left unknown", 1)
		}
	})
	return ctx.Err()
}

// askPatiently asks a node, again while it is too busy to say anything.
func (f *field) askPatiently(ctx context.Context, j *job, at *process) (got reply) {
	for until := time.Now().Add(bound / 2); time.Now().Before(until) && ctx.Err() == nil; prove.Pause(ctx, longRest) {
		one, cancel := context.WithTimeout(ctx, bound/2)
		got = f.ask(one, j, at, "")
		cancel()
		if f.noErrors || got.status != 0 && got.status != http.StatusServiceUnavailable {
			return got
		}
	}
	return got
}

// effects counts what has really happened for each job. (S1)
func (f *field) effects(ctx context.Context) error {
	booked, err := f.db.Effects(ctx)
	if err != nil {
		return fmt.Errorf("read the effects: %w", err)
	}
	for _, j := range f.jobs {
		a, answered := j.answered()
		if j.mode.InDatabase() {
			f.judgeLocal(j, a, answered, booked[j.id()])
			delete(booked, j.id())
		} else {
			f.judgeForeign(j, a, answered, f.provider.Effects(j.id()))
		}
	}
	for id, by := range booked {
		f.r.Violatef("S7", id, "there is an effect that no request asked for, by %q", by)
	}
	return nil
}

func (f *field) judgeLocal(j *job, a report, answered bool, by []string) {
	f.r.Count("effects", len(by))
	switch {
	case len(by) > 1:
		f.accusef(j, "S1", "%d effects, by %q", len(by), by)
	case answered && len(by) == 0:
		f.accusef(j, "S1", "an answer was shown, by %q, and there is no effect", a.By)
	case answered && by[0] != a.By:
		f.accusef(j, "S2", "the answer is by %q and the effect by %q", a.By, by[0])
	}
}

func (f *field) judgeForeign(j *job, a report, answered bool, all []effect.Effect) {
	f.r.Count("effects", len(all))
	for i := range all {
		f.r.Count("calls of the provider", all[i].Calls)
	}
	switch {
	case len(all) > 1:
		f.accusef(j, "S1", "the provider has done it %d times: %+v", len(all), all)
	case len(all) == 1 && all[0].Conflict:
		f.accusef(j, "S1", "the provider got another request under the key of %+v", all[0])
	case answered && len(all) == 0:
		f.accusef(j, "S1", "an answer was shown, by %q, and the provider knows nothing of it", a.By)
	case answered && all[0].ID != a.Receipt:
		f.accusef(j, "S2", "the answer has %q and the provider %q", a.Receipt, all[0].ID)
	}
}
