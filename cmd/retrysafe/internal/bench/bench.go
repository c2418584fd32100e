// Package bench measures a store of the user's: new keys, operations in one commit and
// replays, beside a bare loop of two writes on the same database and by the same driver. It
// works in a sandbox, which it removes.
package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/sandbox"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// Options are what [Run] may be told besides the plan. Nil functions are not called.
type Options struct {
	// Program names the program and its version, for the report.
	Program string
	// Started is called when the store is open and its round trip and its commit are
	// measured. The report has no rows yet.
	Started func(*Report)
	// Progress is called after each measurement.
	Progress func(done, of int)
}

// A LeftoverError says that the sandbox was not removed.
type LeftoverError struct {
	// What is what was left, for people.
	What string
	Err  error
}

func (e *LeftoverError) Error() string {
	return fmt.Sprintf("%s was not removed: %v", e.What, e.Err)
}

func (e *LeftoverError) Unwrap() error { return e.Err }

// Run measures the store at an address. What it has written is removed when it returns, also
// when ctx has ended; otherwise the error is a [*LeftoverError].
func Run(ctx context.Context, address string, plan *Plan, o *Options) (report *Report, err error) {
	at, err := storeurl.Parse(address)
	if err != nil {
		return nil, err
	}
	box, err := sandbox.New(ctx, address, "bench")
	if err != nil {
		return nil, err
	}
	defer func() {
		if left := box.Close(ctx); left != nil {
			report, err = nil, errors.Join(err, &LeftoverError{box.What, left})
		}
	}()
	report = &Report{
		Program: o.Program, Machine: fmt.Sprintf("%d cores", runtime.GOMAXPROCS(0)), Store: storeurl.Redact(address), Kind: at.Kind, Began: time.Now(),
	}
	if err := measure(ctx, box.URL, plan, o, report); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	report.TookSeconds = time.Since(report.Began).Seconds()
	report.Conclude()
	return report, nil
}

// measure measures everything that the plan has, in the sandbox at url.
func measure(ctx context.Context, url string, plan *Plan, o *Options, report *Report) (err error) {
	s, err := open(ctx, url, plan)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if report.Class, err = storeurl.Class(ctx, s.opened.Store); err != nil {
		return err
	}
	if err := s.probe(ctx, report); err != nil {
		return err
	}
	if err := s.stockUp(ctx); err != nil {
		return err
	}
	if o.Started != nil {
		o.Started(report)
	}
	done, of := 0, len(plan.Clients)*len(plan.Loads)*rounds
	for _, clients := range plan.Clients {
		samples, err := s.rounds(ctx, clients, func() {
			if done++; o.Progress != nil {
				o.Progress(done, of)
			}
		})
		if err != nil {
			return err
		}
		report.add(clients, plan.Loads, samples)
	}
	return nil
}

// rounds measures every load from a number of clients, several times. The loads take turns,
// and each round begins with another one, so that what else the machine does meets all of
// them.
func (s *subject) rounds(ctx context.Context, clients int, progress func()) (map[Load][]sample, error) {
	for _, l := range s.plan.Loads { // connections, prepared statements, caches
		if _, err := drive(ctx, clients, s.plan.warmUp(), s.operation(l)); err != nil {
			return nil, fmt.Errorf("%s, %d clients: %w", l, clients, err)
		}
	}
	all := map[Load][]sample{}
	for round := range rounds {
		for i := range s.plan.Loads {
			l := s.plan.Loads[(round+i)%len(s.plan.Loads)]
			one, err := drive(ctx, clients, s.plan.slice(), s.operation(l))
			if err != nil {
				return nil, fmt.Errorf("%s, %d clients: %w", l, clients, err)
			}
			all[l] = append(all[l], one)
			progress()
		}
	}
	return all, nil
}
