// Package prove is the command "retrysafe prove": it runs the checks and reports what
// they have shown. In its files the name prove refers to the package that defines what a
// check is.
package prove

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// options are what the flags ask for.
type options struct {
	store  string
	full   bool
	n      int
	seed   uint64
	limit  time.Duration
	jobs   int
	output string
	source string
	format *command.Choice
}

// Command returns the command.
func Command(env *command.Env) *cobra.Command {
	var o options
	var list bool
	cmd := &cobra.Command{
		Use:   "prove [CHECK...]",
		Short: "Put the promises to the test, on your own database",
		Long: `Tries to break what retrysafe promises, and reports the result: with a simulator, with
processes that are killed and paused, with storms of duplicates, lost replies and hostile
requests. --list shows the checks, and what each of them repeats.

With --store, or $` + stores.URLVariable + `, it works in your database: in PostgreSQL in a schema of
its own, in SQLite in a new file beside the one that you name. Both are removed
afterwards, and nothing else is touched; the role needs the right to create a schema. The
load is real: do not run it on a database that is busy with something else. Without a
store it uses SQLite in a temporary directory, and starts a PostgreSQL server of its own
if one is installed; then it also kills servers, and promotes standbys.

A check that is named must be possible, and "all" names all of them; otherwise a check
that cannot run here is skipped, with the reason. The exit code is 0 if all promises
held, 1 if one was broken, 5 if a check could not be carried out.`,
		Example: `  # everything that can be shown here, in a few minutes
  retrysafe prove
  # on your own database, with a page to show around
  retrysafe prove --store postgres://user:password@host/database --format html --output proof.html
  # one check, larger
  retrysafe prove storm --store sqlite:retrysafe.db -n 50
  # the command that a violation told you to run
  retrysafe prove sim -n 1 --seed 42`,
		ValidArgsFunction: cobra.FixedCompletions(append(checkNames(), "all"), cobra.ShellCompDirectiveNoFileComp),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.store, "store", "", "`URL` of the store (default: SQLite, and PostgreSQL if it is installed)")
	flags.BoolVar(&o.full, "full", false, "the size of a release: hours instead of minutes")
	flags.IntVarP(&o.n, "times", "n", 0, "how often a check does what it repeats (see --list; default: by size)")
	flags.Uint64Var(&o.seed, "seed", 0, "seed of all random choices (default: a new one each time)")
	flags.DurationVar(&o.limit, "for", 0, "how long a check may take that has no end of its own")
	flags.IntVar(&o.jobs, "jobs", 1, "how many checks run at the same time")
	flags.StringVar(&o.output, "output", "", "write the report to `FILE`, and the progress to the terminal")
	flags.StringVar(&o.source, "source", ".", "source tree, for the checks that need one")
	flags.BoolVar(&list, "list", false, "list the checks")
	o.format = command.NewFormat(cmd, "text", "json", "html")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		if list {
			return listChecks(env)
		}
		return o.run(cmd.Context(), env, args)
	})
	return cmd
}

func checkNames() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.Name)
	}
	return names
}

func listChecks(env *command.Env) error {
	t := terminal.NewTable(env.Out, false, "CHECK", "GOAL", "REPEATS (-n)", "INVARIANTS", "SHOWS")
	for _, c := range checks() {
		t.Add(c.Name, c.Goal, c.Size.String(), strings.Join(c.Holds, " "), c.Shows)
	}
	return t.Flush()
}

// run runs the checks of these names and reports.
func (o *options) run(ctx context.Context, env *command.Env, names []string) (err error) {
	chosen, err := selectChecks(names)
	if err != nil {
		return err
	}
	if o.seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // it never fails
		o.seed = binary.LittleEndian.Uint64(b[:]) >> 32
	}
	if o.store == "" {
		o.store = env.Getenv(stores.URLVariable)
	}
	if o.store != "" {
		if _, err := stores.Parse(o.store); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "retrysafe-prove-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	live, finish, err := o.outputs(env)
	if err != nil {
		return err
	}
	r := &runner{options: o, streams: &env.Streams, named: len(names) > 0, dir: dir, live: live}
	report, err := r.run(ctx, chosen)
	if err != nil {
		return err
	}
	if err := finish(report); err != nil {
		return exit.Errorf(exit.Failed, "the report was not written: %v", err)
	}
	switch {
	case ctx.Err() != nil:
		return exit.Errorf(exit.Failed, "not all was checked: %v", ctx.Err())
	case report.Verdict == prove.Failed:
		return exit.Silent(exit.No)
	case report.Verdict == prove.Broken:
		return exit.Silent(exit.Failed)
	}
	return nil
}

// selectChecks returns the checks of these names, in the order in which they run. No
// names select all of them.
func selectChecks(names []string) ([]prove.Check, error) {
	all := checks()
	if len(names) == 0 || slices.Contains(names, "all") {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(c prove.Check) bool { return c.Name == name }) {
			return nil, exit.Usagef("there is no check %q", name).Hintf("they are %s, and all", strings.Join(checkNames(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(c prove.Check) bool { return !slices.Contains(names, c.Name) }), nil
}

// outputs returns where results are shown while checks run, and the function that writes
// the report at the end.
func (o *options) outputs(env *command.Env) (live io.Writer, finish func(*prove.Report) error, err error) {
	tail := func(r *prove.Report) error {
		_, err := io.WriteString(env.Out, r.Tail())
		return err
	}
	switch {
	case o.output != "":
		if _, err := os.Stat(filepath.Dir(o.output)); err != nil { // now, and not after an hour
			return nil, nil, exit.Usagef("%v", err)
		}
		return env.Out, func(r *prove.Report) error {
			if err := o.writeFile(r); err != nil {
				return err
			}
			return tail(r)
		}, nil
	case o.format.Is("text"):
		return env.Out, tail, nil
	default:
		return env.Err, func(r *prove.Report) error { return o.write(env.Out, r) }, nil
	}
}

func (o *options) write(w io.Writer, r *prove.Report) error {
	switch o.format.String() {
	case "json":
		return r.JSON(w)
	case "html":
		return r.HTML(w)
	default:
		return r.Text(w)
	}
}

func (o *options) writeFile(r *prove.Report) error {
	file, err := os.Create(o.output)
	if err != nil {
		return err
	}
	if err := o.write(file, r); err != nil {
		_ = file.Close() // the first error says more
		return err
	}
	return file.Close()
}
