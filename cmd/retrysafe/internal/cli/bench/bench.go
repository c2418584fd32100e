// Package bench is the command "retrysafe bench": it measures a database of the user's. In
// its files the name bench refers to the package that measures.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/bench"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/sandbox"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// options are what the flags ask for.
type options struct {
	stores   stores.Flags
	clients  []int
	duration time.Duration
	chart    string
	yes      bool
	format   *command.Choice
}

// Command returns the command.
func Command(env *command.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how many keys your own database takes",
		Long: `Measures your database as retrysafe uses it, and says what that means for the size of a
deployment: new keys (reserve and complete), operations in one commit where the store joins
transactions, and replays, from several numbers of clients. Beside them runs a bare loop on
the same database and by the same driver, with nothing of retrysafe: two writes for each
key, each of them durable. The loads take turns, in three rounds; medians count. Before
them a round trip and the commit of one row are measured.

The store is given by --store, by the configuration of a gateway (--config), or by
$` + stores.URLVariable + `. It works in PostgreSQL in a schema of its own, in MySQL in a database of
its own, in SQLite in a new file beside the one that you name, in Redis under a prefix of
its own, in DynamoDB in a table of its own. They are removed at the end, also after Ctrl-C,
and nothing else is touched; the role needs the right to create them. The load is real:
do not run it on a database that is busy with something else. Before it begins, it says
what it will write and asks; without a terminal it needs --yes.

Run it where your service runs: the network between is part of what is measured.`,
		Example: `  # half a minute, on the machine of the service
  retrysafe bench --store postgres://user:password@host/database
  # a longer look, with an image to show around
  retrysafe bench --store sqlite:retrysafe.db --duration 5m --clients 1,8,32,256,1024 --chart bench.svg
  # for a script
  retrysafe bench --store redis://host --yes --format json`,
		Args: command.Args(),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.stores.URL, "store", "", "`URL` of the store")
	flags.StringVar(&o.stores.Config, "config", "", "configuration `FILE` of a gateway, which names the store")
	flags.IntSliceVar(&o.clients, "clients", []int{1, 8, 32, 256}, "`NUMBERS` of clients, one after the other")
	flags.DurationVar(&o.duration, "duration", 30*time.Second, "how long all measurements take together")
	flags.StringVar(&o.chart, "chart", "", "write a chart to `FILE`, as SVG")
	flags.BoolVar(&o.yes, "yes", false, "do not ask")
	o.format = command.NewFormat(cmd, "text", "json")
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) })
	return cmd
}

func (o *options) run(ctx context.Context, env *command.Env) error {
	l, err := o.stores.Location(env)
	if err != nil {
		return err
	}
	if l.Address.Kind == storeurl.Memory {
		return exit.Usagef("a memory: store has no database that could be measured").Hintf("name a store that processes share, such as sqlite: or postgres:")
	}
	plan, err := bench.NewPlan(l.URL, o.clients, o.duration)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	if o.chart != "" {
		if _, err := os.Stat(filepath.Dir(o.chart)); err != nil { // now, and not after the run
			return exit.Usagef("%v", err)
		}
	}
	if err := o.announce(ctx, env, l, plan); err != nil {
		return err
	}
	report, err := o.measure(ctx, env, l, plan)
	if err != nil {
		return err
	}
	if o.chart != "" {
		if err := writeChart(o.chart, report); err != nil {
			return exit.Errorf(exit.Failed, "the chart was not written: %v", err)
		}
	}
	if o.format.Is("json") {
		return terminal.WriteJSON(env.Out, report)
	}
	return report.Tail(env.Out)
}

// bytesPerKey is what a row and its part of the database's log take, about.
const bytesPerKey = 1500

// announce says what will be written and for how long, and asks whether to go on.
func (o *options) announce(ctx context.Context, env *command.Env, l *stores.Location, plan *bench.Plan) error {
	text := fmt.Sprintf("This writes test keys into %s, in %s, for about %v, and removes them afterwards.\n",
		l, sandbox.Place(l.Address.Kind), plan.Takes().Round(time.Second))
	switch l.Address.Kind {
	case storeurl.DynamoDB:
		text += "It writes as fast as the service takes it: each key is two writes, which Amazon charges for."
	case storeurl.Redis:
		text += fmt.Sprintf("It writes as fast as the server takes it: about %s of memory for each 1,000 keys a second.", megabytes(plan))
	case storeurl.SQLite:
		text += fmt.Sprintf("It writes as fast as the disk takes it: about %s for each 1,000 keys a second.", megabytes(plan))
	default:
		text += fmt.Sprintf("It writes as fast as the server takes it, with up to %d connections: about %s of disk for each 1,000 keys a second.", bench.Connections, megabytes(plan))
	}
	if o.yes {
		fmt.Fprintln(env.Err, text)
		return nil
	}
	return env.Confirm(ctx, text)
}

func megabytes(plan *bench.Plan) string {
	return fmt.Sprintf("%.0f MB", max(plan.Writes().Seconds()*1000*bytesPerKey/1e6, 1))
}

// measure runs the benchmark and shows what it finds meanwhile.
func (o *options) measure(ctx context.Context, env *command.Env, l *stores.Location, plan *bench.Plan) (*bench.Report, error) {
	progress := env.Progress()
	defer progress.End()
	var began time.Time
	report, err := bench.Run(ctx, l.URL, plan, &bench.Options{
		Program: build.Current().String(),
		Started: func(r *bench.Report) {
			began = time.Now()
			if o.format.Is("text") {
				progress.End()
				_ = r.Head(env.Out) // the tail reports a broken output
			}
		},
		Progress: func(done, of int) { progress.ShowPart(done, of, "measurements", began) },
	})
	if err == nil {
		return report, nil
	}
	left, isLeft := errors.AsType[*bench.LeftoverError](err)
	switch {
	case isLeft:
		return nil, exit.Errorf(exit.Failed, "%s in %s was not removed: %v", printable.Text(left.What), l, left.Err).Hintf("remove it by hand")
	case ctx.Err() != nil:
		return nil, exit.Errorf(exit.Interrupted, "interrupted; what was written in %s is removed", l)
	default:
		return nil, l.StoreError(err)
	}
}

func writeChart(path string, r *bench.Report) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := r.Chart(file); err != nil {
		_ = file.Close() // the first error says more
		return err
	}
	return file.Close()
}
