package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// A runner runs checks.
type runner struct {
	*options
	streams *terminal.Streams
	named   bool // the checks were asked for by name
	dir     string
	cores   int       // of the machine
	live    io.Writer // shows results while checks run

	mu       sync.Mutex // guards writes to live and progress
	progress *terminal.Progress
}

// A task is one check, on one store if it needs one.
type task struct {
	check prove.Check
	store string
	// skip is why it cannot be carried out.
	skip   string
	result *prove.Result
}

// run runs the checks and returns the report.
func (r *runner) run(ctx context.Context, chosen []prove.Check) (report *prove.Report, err error) {
	if r.store == "" { // servers that are started here are stopped here
		defer func() { err = errors.Join(err, stopServers()) }()
	}
	stores, skips, err := r.stores(ctx, chosen)
	if err != nil {
		return nil, err
	}
	r.cores = runtime.GOMAXPROCS(0)
	report = &prove.Report{
		Program: build.Current().String(), Machine: fmt.Sprintf("%d cores", r.cores), Size: "change", Seed: r.seed, Began: time.Now(),
	}
	if r.full {
		report.Size = "release"
	}
	for _, s := range stores {
		facts, err := storeFacts(ctx, s)
		if err != nil {
			return nil, err
		}
		report.Stores = append(report.Stores, facts)
	}
	r.progress = r.streams.Progress()
	r.show(report.Head())
	tasks := r.tasks(chosen, stores, skips)
	r.runTasks(ctx, tasks)
	for _, t := range tasks {
		if t.result != nil {
			report.Results = append(report.Results, t.result)
		}
	}
	report.End(time.Now())
	return report, nil
}

// notPromised is why a check that needs transactions is skipped.
const notPromised = "not promised: the store joins no transactions and has no outbox"

// tasks returns each check with each store that it can run on.
func (r *runner) tasks(chosen []prove.Check, stores []string, skips map[string]string) (tasks []*task) {
	for _, c := range chosen {
		if !c.Needs.Has(prove.Store) {
			tasks = append(tasks, &task{check: c, skip: r.skipReason(&c)})
			continue
		}
		for _, s := range stores {
			t := &task{check: c, store: s}
			if c.Needs.Has(prove.Processes) && strings.HasPrefix(s, storeurl.Memory) {
				t.skip = "processes cannot share memory:"
			}
			if c.Needs.Has(prove.Transactions) && !storeurl.JoinsTransactions(s) {
				t.skip = notPromised
			}
			if c.Name == "torture" && strings.HasPrefix(s, storeurl.DynamoDB+":") {
				t.skip = "it counts goroutines, and each idle connection to the service has two"
			}
			tasks = append(tasks, t)
		}
		for name, why := range skips {
			tasks = append(tasks, &task{check: c, store: name, skip: why})
		}
	}
	return tasks
}

// skipReason returns why a check that needs no store is skipped, or an empty text.
func (r *runner) skipReason(c *prove.Check) string {
	switch {
	case c.Needs.Has(prove.Source) && !r.named:
		return "it takes long and works on the source tree; ask for it by name"
	case c.Needs.Has(prove.Servers) && r.store != "" && !r.named:
		return "it works on servers of its own, not on yours"
	default:
		return ""
	}
}

// runTasks runs as many tasks at the same time as the flags ask for.
func (r *runner) runTasks(ctx context.Context, tasks []*task) {
	if r.jobs > 1 {
		// While a check keeps every processor busy, the runtime polls the network only once
		// in 10 ms. So there are more processors than that check may use.
		cores := runtime.GOMAXPROCS(2 * r.cores)
		defer runtime.GOMAXPROCS(cores)
	}
	slots := make(chan struct{}, max(r.jobs, 1))
	var all sync.WaitGroup
	defer all.Wait()
	for _, t := range tasks {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-slots }()
			t.result = r.runTask(ctx, t)
			if ctx.Err() != nil {
				t.result = nil // it was interrupted, and shows nothing
				return
			}
			r.show(t.result.Line() + "\n")
		})
	}
}

// show writes text in place of the progress.
func (r *runner) show(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.End()
	_, _ = io.WriteString(r.live, text) // errors of the report itself are returned
}

// runTask runs one check, in a sandbox of its own if it needs a store.
func (r *runner) runTask(ctx context.Context, t *task) (result *prove.Result) {
	began, what := time.Now(), prove.Named(t.check.Name, t.store)
	env := prove.Env{
		Seed: r.seed, Full: r.full, N: r.n, For: r.limit, Dir: r.dir, Source: r.source, Cores: r.cores, Log: slog.New(slog.DiscardHandler),
		Progress: func(done, of int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.progress.ShowPart(done, of, what, began)
		},
	}
	if t.store != "" {
		defer func() { result.Store = storeurl.Redact(t.store) }()
	}
	if t.skip != "" {
		return r.impossible(&t.check, &env, t.skip)
	}
	if t.store != "" {
		sandbox, err := sandbox.New(ctx, t.store)
		if err != nil {
			return broken(&t.check, &env, err)
		}
		defer func() {
			if err := sandbox.Close(ctx); err != nil && result.Verdict == prove.Passed {
				result.Verdict, result.Why = prove.Broken, "the sandbox of the check was not removed: "+exit.Plain(err)
			}
		}()
		env.Store = sandbox.URL
	}
	result = prove.Run(ctx, &t.check, env)
	if errors.Is(result.Err, exec.ErrNotFound) || errors.Is(result.Err, errors.ErrUnsupported) || isNotInstalled(result.Err) {
		return r.impossible(&t.check, &env, exit.Plain(result.Err))
	}
	return result
}

// impossible returns the result of a check that cannot run here: skipped, or broken if
// it was asked for by name.
func (r *runner) impossible(c *prove.Check, env *prove.Env, why string) *prove.Result {
	result := prove.Skip(c, env, why)
	if r.named {
		result.Verdict = prove.Broken
	}
	return result
}

// broken returns the result of a check that could not be carried out.
func broken(c *prove.Check, env *prove.Env, err error) *prove.Result {
	result := prove.Skip(c, env, exit.Plain(err))
	result.Verdict, result.Err = prove.Broken, err
	return result
}
