package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// bench is where checks are carried out.
type bench struct {
	*program
	*proof
	named bool // the checks were asked for by name
	dir   string
	cores int       // that there are
	out   io.Writer // where people see how it goes

	mu   sync.Mutex // guards out
	seen *progress
}

// A task is one check, on one store if it needs one.
type task struct {
	check prove.Check
	store string
	// skip is why it cannot be carried out.
	skip   string
	result *prove.Result
}

// run carries the checks out.
func (b *bench) run(ctx context.Context, chosen []prove.Check) (report *prove.Report, err error) {
	if b.store == "" { // servers are ours to start, and to stop
		defer func() { err = errors.Join(err, stopServers()) }()
	}
	stores, skips, err := b.stores(ctx, chosen)
	if err != nil {
		return nil, err
	}
	b.cores = runtime.GOMAXPROCS(0)
	report = &prove.Report{
		Program: thisBuild().String(), Machine: fmt.Sprintf("%d cores", b.cores), Size: "change", Seed: b.seed, Began: time.Now(),
	}
	if b.full {
		report.Size = "release"
	}
	for _, s := range stores {
		facts, err := factsOf(ctx, s)
		if err != nil {
			return nil, err
		}
		report.Stores = append(report.Stores, facts)
	}
	b.seen = b.progress()
	b.say(report.Head())
	tasks := b.tasks(chosen, stores, skips)
	b.carryOut(ctx, tasks)
	for _, t := range tasks {
		if t.result != nil {
			report.Results = append(report.Results, t.result)
		}
	}
	report.End(time.Now())
	return report, nil
}

// tasks puts each check with each store that it can be carried out on.
func (b *bench) tasks(chosen []prove.Check, stores []string, skips map[string]string) (tasks []*task) {
	for _, c := range chosen {
		if !c.Needs.Has(prove.Store) {
			tasks = append(tasks, &task{check: c, skip: b.unfit(&c)})
			continue
		}
		for _, s := range stores {
			t := &task{check: c, store: s}
			if c.Needs.Has(prove.Processes) && strings.HasPrefix(s, storeurl.Memory) {
				t.skip = "processes cannot share memory:"
			}
			tasks = append(tasks, t)
		}
		for name, why := range skips {
			tasks = append(tasks, &task{check: c, store: name, skip: why})
		}
	}
	return tasks
}

// unfit says why a check that needs no store is left out, if it is.
func (b *bench) unfit(c *prove.Check) string {
	switch {
	case c.Needs.Has(prove.Source) && !b.named:
		return "it takes long and works on the source tree; ask for it by name"
	case c.Needs.Has(prove.Servers) && b.store != "" && !b.named:
		return "it works on servers of its own, not on yours"
	default:
		return ""
	}
}

// carryOut carries tasks out, as many at a time as was asked for.
func (b *bench) carryOut(ctx context.Context, tasks []*task) {
	if b.jobs > 1 {
		// While a check keeps every processor busy, nobody looks at the network but once
		// in 10 ms. So there are more of them than that check may use.
		cores := runtime.GOMAXPROCS(2 * b.cores)
		defer runtime.GOMAXPROCS(cores)
	}
	turn := make(chan struct{}, max(b.jobs, 1))
	var all sync.WaitGroup
	defer all.Wait()
	for _, t := range tasks {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-turn }()
			t.result = b.one(ctx, t)
			if ctx.Err() != nil {
				t.result = nil // it was interrupted, and shows nothing
				return
			}
			b.say(t.result.Line() + "\n")
		})
	}
}

// say writes for people, where the progress is not.
func (b *bench) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.end()
	_, _ = io.WriteString(b.out, text) // the report itself is written elsewhere, and checked
}

// one carries one check out, in a sandbox of its own.
func (b *bench) one(ctx context.Context, t *task) (r *prove.Result) {
	began, what := b.seen.now(), prove.Named(t.check.Name, t.store)
	env := prove.Env{
		Seed: b.seed, Full: b.full, N: b.n, For: b.limit, Dir: b.dir, Source: b.source, Cores: b.cores, Log: slog.New(slog.DiscardHandler),
		Progress: func(done, of int) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.seen.showPart(done, of, what, began)
		},
	}
	if t.store != "" {
		defer func() { r.Store = storeurl.Redact(t.store) }()
	}
	if t.skip != "" {
		return b.cannot(&t.check, &env, t.skip)
	}
	if t.store != "" {
		y, err := sandbox.New(ctx, t.store)
		if err != nil {
			return b.broken(&t.check, &env, err)
		}
		defer func() {
			if err := y.Close(ctx); err != nil && r.Verdict == prove.Passed {
				r.Verdict, r.Why = prove.Broken, "what was made for the check is still there: "+plainly(err)
			}
		}()
		env.Store = y.URL
	}
	r = prove.Run(ctx, &t.check, env)
	if errors.Is(r.Err, exec.ErrNotFound) || errors.Is(r.Err, errors.ErrUnsupported) || missing(r.Err) {
		return b.cannot(&t.check, &env, plainly(r.Err))
	}
	return r
}

// cannot is the result of a check that is impossible here: no news, unless it was
// asked for.
func (b *bench) cannot(c *prove.Check, env *prove.Env, why string) *prove.Result {
	r := prove.Skip(c, env, why)
	if b.named {
		r.Verdict = prove.Broken
	}
	return r
}

func (b *bench) broken(c *prove.Check, env *prove.Env, err error) *prove.Result {
	r := prove.Skip(c, env, plainly(err))
	r.Verdict, r.Err = prove.Broken, err
	return r
}

// stores returns the stores to work on: the user's, or some of our own. Those that
// cannot be had here are skips.
func (b *bench) stores(ctx context.Context, chosen []prove.Check) (stores []string, skips map[string]string, err error) {
	if b.store != "" {
		return []string{b.store}, nil, nil
	}
	if !slices.ContainsFunc(chosen, func(c prove.Check) bool { return c.Needs.Has(prove.Store) }) {
		return nil, nil, nil
	}
	stores = []string{storeurl.SQLite + ":" + filepath.Join(b.dir, "own.db")}
	url, err := ownPostgres(ctx)
	switch {
	case err == nil:
		return append(stores, url), nil, nil
	case missing(err):
		return stores, map[string]string{storeurl.Postgres: plainly(err)}, nil
	default:
		return nil, nil, failed(exitStore, "no PostgreSQL server of our own could be started: %v", err)
	}
}

// factsOf asks a store what it promises.
func factsOf(ctx context.Context, url string) (prove.StoreFacts, error) {
	at, err := storeurl.Parse(url)
	if err != nil {
		return prove.StoreFacts{}, misused("%v", err)
	}
	facts := prove.StoreFacts{URL: storeurl.Redact(url), Kind: at.Kind}
	switch at.Kind {
	case storeurl.SQLite:
		facts.Class = "class A on this machine: each commit is flushed to the disk"
		if _, err := os.Stat(filepath.Dir(at.Path)); err != nil {
			return facts, failed(exitStore, "%v", err)
		}
	case storeurl.Memory:
		facts.Class = "class D: gone with the process"
	default:
		y, err := sandbox.New(ctx, url)
		if err != nil {
			return facts, failed(exitStore, "%v", err)
		}
		defer func() { _ = y.Close(ctx) }()
		place, err := sandbox.Open(ctx, y.URL)
		if err != nil {
			return facts, failed(exitStore, "%v", err)
		}
		defer func() { _ = place.Close() }()
		if pg, ok := place.Store.(*pgstore.Store); ok {
			d, err := pg.Durability(ctx)
			if err != nil {
				return facts, failed(exitStore, "%v", err)
			}
			facts.Class = d.String()
		}
	}
	return facts, nil
}
