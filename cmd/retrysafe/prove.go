package main

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

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// proof is what is to be proven, and how thoroughly.
type proof struct {
	store    string
	full     bool
	n        int
	seed     uint64
	limit    time.Duration
	jobs     int
	output   string
	source   string
	format   *choice
	listOnly bool
}

func (p *program) prove() *cobra.Command {
	var f proof
	cmd := &cobra.Command{
		Use:   "prove [CHECK...]",
		Short: "Put the promises to the test, on your own database",
		Long: `Tries to break what retrysafe promises, and reports what came of it: with a simulator,
with processes that are killed and paused, with storms of duplicates, lost replies and
hostile requests. --list says which checks there are, and what each of them repeats.

With --store, or $` + storeVariable + `, it works in your database: in a schema of its own
in PostgreSQL, in a new file beside the one you name in SQLite. Both are taken away
again, and nothing else is touched; the role needs the right to create a schema. The
load is real: do not do this to a database that is busy with something else.
Without a store it takes SQLite in a temporary directory, and starts a PostgreSQL
server of its own if one is installed; then it also kills servers, and promotes
standbys.

What is asked for by name must be possible, and "all" asks for everything; otherwise
what cannot be done here is skipped, with a word why. The exit code is 0 if all
promises held, 1 if one was broken, 5 if a check could not be carried out.`,
		Example: `  # all that can be shown here, in a few minutes
  retrysafe prove
  # on your own database, with a page to show around
  retrysafe prove --store postgres://user:password@host/database --format html --output proof.html
  # one check, larger
  retrysafe prove storm --store sqlite:retrysafe.db -n 50
  # what a violation told you to try
  retrysafe prove sim -n 1 --seed 42`,
		ValidArgsFunction: cobra.FixedCompletions(append(checkNames(), "all"), cobra.ShellCompDirectiveNoFileComp),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.store, "store", "", "`URL` of the store (default: SQLite, and PostgreSQL if it is installed)")
	flags.BoolVar(&f.full, "full", false, "the size of a release: hours instead of minutes")
	flags.IntVarP(&f.n, "times", "n", 0, "how often a check does what it repeats (see --list; default: by size)")
	flags.Uint64Var(&f.seed, "seed", 0, "what decides all that is left to chance (default: another one each time)")
	flags.DurationVar(&f.limit, "for", 0, "how long a check may take that could go on for ever")
	flags.IntVar(&f.jobs, "jobs", 1, "how many checks run at the same time")
	flags.StringVar(&f.output, "output", "", "write the report to `FILE`, and how it goes to the terminal")
	flags.StringVar(&f.source, "source", ".", "source tree, for the checks that need one")
	flags.BoolVar(&f.listOnly, "list", false, "list the checks")
	f.format = formats(cmd, "text", "json", "html")
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error {
		if f.listOnly {
			return p.listChecks()
		}
		return p.proves(cmd.Context(), &f, args)
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

func (p *program) listChecks() error {
	t := newTable(p.stdout, &choice{}, "CHECK", "GOAL", "REPEATS (-n)", "INVARIANTS", "SHOWS")
	for _, c := range checks() {
		t.add(c.Name, c.Goal, c.Size.String(), strings.Join(c.Holds, " "), c.Shows)
	}
	return t.flush()
}

// proves carries the checks out and reports.
func (p *program) proves(ctx context.Context, f *proof, names []string) (err error) {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	if f.seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // it never fails
		f.seed = binary.LittleEndian.Uint64(b[:]) >> 32
	}
	if f.store == "" {
		f.store = p.getenv(storeVariable)
	}
	if f.store != "" {
		if _, err := storeurl.Parse(f.store); err != nil {
			return misused("%v", err)
		}
	}
	dir, err := os.MkdirTemp("", "retrysafe-prove-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, finish, err := p.reportTo(f)
	if err != nil {
		return err
	}
	b := &bench{program: p, proof: f, named: len(names) > 0, dir: dir, out: out}
	report, err := b.run(ctx, chosen)
	if err != nil {
		return err
	}
	if err := finish(report); err != nil {
		return failed(exitFailed, "the report was not written: %v", err)
	}
	switch {
	case ctx.Err() != nil:
		return failed(exitFailed, "not all was checked: %v", ctx.Err())
	case report.Verdict == prove.Failed:
		return quietly(exitNo)
	case report.Verdict == prove.Broken:
		return quietly(exitFailed)
	}
	return nil
}

// choose returns the checks of these names, in their order. None are all.
func choose(names []string) ([]prove.Check, error) {
	all := checks()
	if len(names) == 0 || slices.Contains(names, "all") {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(c prove.Check) bool { return c.Name == name }) {
			return nil, misused("there is no check %q", name).hinted("they are %s, and all", strings.Join(checkNames(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(c prove.Check) bool { return !slices.Contains(names, c.Name) }), nil
}

// reportTo says where people see how it goes, and what writes the report at the end.
func (p *program) reportTo(f *proof) (live io.Writer, finish func(*prove.Report) error, err error) {
	write := func(w io.Writer, r *prove.Report) error {
		switch f.format.value {
		case "json":
			return r.JSON(w)
		case "html":
			return r.HTML(w)
		default:
			return r.Text(w)
		}
	}
	tail := func(w io.Writer, r *prove.Report) error {
		_, err := io.WriteString(w, r.Tail())
		return err
	}
	switch {
	case f.output != "":
		if _, err := os.Stat(filepath.Dir(f.output)); err != nil { // now, not after an hour
			return nil, nil, misused("%v", err)
		}
		return p.stdout, func(r *prove.Report) error {
			file, err := os.Create(f.output)
			if err != nil {
				return err
			}
			if err := write(file, r); err != nil {
				_ = file.Close() // the first error says more
				return err
			}
			if err := file.Close(); err != nil {
				return err
			}
			return tail(p.stdout, r)
		}, nil
	case f.format.value == "text":
		return p.stdout, func(r *prove.Report) error { return tail(p.stdout, r) }, nil
	default:
		return p.stderr, func(r *prove.Report) error { return write(p.stdout, r) }, nil
	}
}
