package keys

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

// A listing is what the flags of keys list ask for.
type listing struct {
	*selectFlags
	filter    operator.Filter
	keyHash   string
	after     string
	olderThan time.Duration
	sort      *command.Choice
	reverse   bool
	all       bool
	long      bool
	hashed    bool
	format    *command.Choice
}

func listCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List keys: all, or those that are stuck",
		Long: `Lists keys, in the order of the store, or sorted by a time. Times are by the clock of
the store. With --hash keys are shown as logs show them, so that readers of the list
cannot use them.

Stuck keys are found by --state unknown (it may have happened: a resolver is asked, or,
if none is configured, a person has to look), by --dead (of these the ones that resolvers
have given up: a person has to look), and by --state in_progress --due (the lease of the
attempt has ended; no sweeper runs). "retrysafe keys groups" shows them in groups.

` + selecting,
		Example: `  # outcomes that resolvers have given up; without resolvers see --state unknown
  retrysafe keys list --dead
  # attempts whose lease has ended, and requests that no worker has claimed
  retrysafe keys list --state in_progress --state accepted --due
  # the oldest unknown outcomes of one operation
  retrysafe keys list --state unknown --operation 'POST /charges' --sort created --limit 20
  # the key that a log line calls 55679e8a463c13f3
  retrysafe keys list --key-hash 55679e8a463c13f3
  # for a script: all keys of one tenant, one JSON object in each line
  retrysafe keys list --tenant tenant-a --all -o json
  # for a spreadsheet, without the keys themselves
  retrysafe keys list --state unknown --hash -o csv`,
		Args: command.Args(),
		RunE: command.Run(func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context(), env, target) }),
	}
	l.selectFlags = addSelectFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&l.filter.Scope, "scope", "", "only keys of this scope")
	flags.DurationVar(&l.olderThan, "older-than", 0, "only keys that were first sent longer ago than this")
	flags.BoolVar(&l.filter.Due, "due", false, "only keys whose deadline has passed, by the clock of the store")
	flags.BoolVar(&l.filter.Dead, "dead", false, "only unknown outcomes that resolvers have given up")
	flags.BoolVar(&l.filter.System, "system", false, "include retrysafe's own keys")
	flags.StringVar(&l.keyHash, "key-hash", "", "only keys with this hash, which logs show")
	l.sort = command.NewChoice(cmd, "sort", "order of the list, the earliest time first; it reads the whole store", "none", "created", "updated", "deadline")
	flags.BoolVar(&l.reverse, "reverse", false, "with --sort: the latest first")
	flags.IntVar(&l.filter.Limit, "limit", 100, "how many at most")
	flags.BoolVar(&l.all, "all", false, "all of them, without a limit")
	flags.StringVar(&l.after, "after", "", "continue a list: the value that it printed at its end")
	flags.BoolVar(&l.long, "long", false, "exact times, and more columns")
	flags.BoolVar(&l.hashed, "hash", false, "show hashes instead of keys")
	l.format = command.NewFormat(cmd, "table", "json", "csv")
	cmd.MarkFlagsMutuallyExclusive("until", "older-than")
	return cmd
}

// parse checks the flags and completes the filter.
func (l *listing) parse() error {
	f, err := l.selectFlags.filter()
	if err != nil {
		return err
	}
	f.Scope, f.Due, f.Dead, f.System, f.Limit = printable.ParseName(l.filter.Scope), l.filter.Due, l.filter.Dead, l.filter.System, l.filter.Limit
	l.filter = f
	sorted := !l.sort.Is("none")
	switch {
	case l.filter.Limit < 1:
		return exit.Usagef("--limit %d is not above zero", l.filter.Limit).Hintf("--all lists everything")
	case l.olderThan < 0:
		return exit.Usagef("--older-than %v is negative", l.olderThan)
	case sorted && (l.all || l.after != ""):
		return exit.Usagef("--sort is for the first keys of an order, not with --all or --after").Hintf("use --limit, up to %s", terminal.Number(maxSorted))
	case sorted && l.filter.Limit > maxSorted:
		return exit.Usagef("--limit %d is more than can be sorted", l.filter.Limit).Hintf("%s at most; without --sort there is no limit", terminal.Number(maxSorted))
	case l.reverse && !sorted:
		return exit.Usagef("--reverse is for --sort").Hintf("for example --sort created --reverse")
	}
	if l.olderThan > 0 {
		l.filter.Until = time.Now().Add(-l.olderThan)
	}
	if l.after != "" {
		ref, ok := parseCursor(l.after)
		if !ok {
			return exit.Usagef("--after %q is not a value that a list prints at its end", l.after)
		}
		l.filter.After = ref
	}
	return nil
}

func (l *listing) run(ctx context.Context, env *command.Env, target *stores.Flags) error {
	if err := l.parse(); err != nil {
		return err
	}
	s, err := open(ctx, env, target)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	return l.write(ctx, env, s)
}

// write lists what the flags ask for.
func (l *listing) write(ctx context.Context, env *command.Env, s *session) error {
	columns := []string{"SCOPE", "KEY", "STATE", "OPERATION", "TRY", "CHANGED", "DEADLINE"}
	if l.long {
		columns = append(columns, "CREATED", "REVISION", "EFFECTS", "STATUS", "PROVIDER REF", "REASON")
	}
	t := terminal.NewTable(env.Out, l.format.Is("csv"), columns...)
	if !l.sort.Is("none") {
		return l.sorted(ctx, env, s, t)
	}
	left, f, more := l.filter.Limit, l.filter, true
	for found := 0; more && (l.all || left > 0); {
		if f.Limit = left; l.all || l.keyHash != "" {
			f.Limit = 1000
		}
		page, err := s.List(ctx, f)
		if err != nil {
			return s.StoreError(err)
		}
		for i := range page.Records {
			r := &page.Records[i]
			if l.keyHash != "" && retrysafe.HashKey(r.Key) != l.keyHash {
				continue
			}
			left--
			found++
			if err := l.add(env, t, r); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if f.After, more = page.Next, page.More; !more && found == 0 {
			l.sayNone(ctx, env, s)
		}
	}
	if more && !l.all {
		fmt.Fprintf(env.Err, "there is more: the same with --after %s\n", cursor(f.After))
	}
	return nil
}

// sayNone says that the list is empty. With --dead it says too if there are unknown outcomes
// all the same: without resolvers all of them need a person, and none is given up. A list
// that goes on behind another one, or looks for one key, does not show whether one is.
func (l *listing) sayNone(ctx context.Context, env *command.Env, s *session) {
	fmt.Fprintln(env.Err, "no keys")
	if !l.filter.Dead || l.keyHash != "" || l.after != "" || len(l.filter.States) > 0 {
		return
	}
	f := l.filter
	f.Dead, f.States, f.Limit = false, []retrysafe.State{retrysafe.StateUnknown}, 1
	if page, err := s.List(ctx, f); err == nil && len(page.Records) > 0 {
		fmt.Fprintln(env.Err, "but outcomes are unknown that no resolver has given up. If no resolver is configured, they need a person: --state unknown lists them")
	}
}

// maxSorted bounds how many records are held to sort them.
const maxSorted = 10_000

// sorted lists the first keys of an order by time. It holds twice as many in memory as
// it lists.
func (l *listing) sorted(ctx context.Context, env *command.Env, s *session, t *terminal.Table) error {
	var found []adminwire.View
	total, f := 0, l.filter
	f.Limit = 2000
	cut := func() {
		slices.SortStableFunc(found, l.compare)
		if len(found) > l.filter.Limit {
			clear(found[l.filter.Limit:])
			found = found[:l.filter.Limit]
		}
	}
	for more := true; more; {
		page, err := s.List(ctx, f)
		if err != nil {
			return s.StoreError(err)
		}
		for i := range page.Records {
			if l.keyHash == "" || retrysafe.HashKey(page.Records[i].Key) == l.keyHash {
				found = append(found, page.Records[i])
				total++
			}
			if len(found) >= 2*l.filter.Limit {
				cut()
			}
		}
		f.After, more = page.Next, page.More
	}
	cut()
	for i := range found {
		if err := l.add(env, t, &found[i]); err != nil {
			return err
		}
	}
	switch {
	case total == 0:
		l.sayNone(ctx, env, s)
	case total > len(found):
		fmt.Fprintf(env.Err, "%s of %s\n", terminal.Number(len(found)), terminal.Count(total, "key", "keys"))
	}
	return t.Flush()
}

// compare orders two records by the time that the list is sorted by.
func (l *listing) compare(a, b adminwire.View) int {
	at := func(r *adminwire.View) time.Time {
		switch {
		case l.sort.Is("created"):
			return r.CreatedAt
		case l.sort.Is("updated"):
			return r.UpdatedAt
		default:
			return r.Deadline
		}
	}
	if l.reverse {
		a, b = b, a
	}
	return at(&a).Compare(at(&b))
}

// add adds one record to the output.
func (l *listing) add(env *command.Env, t *terminal.Table, r *adminwire.View) error {
	if l.format.Is("json") {
		return terminal.WriteJSON(env.Out, newRecordJSON(r, l.hashed, false))
	}
	key := printable.Name(r.Key)
	if l.hashed {
		key = retrysafe.HashKey(r.Key)
	}
	exact := l.long || l.format.Is("csv")
	cells := []string{
		printable.Name(r.Scope), key, stateText(&r.Record), printable.Text(r.Operation), strconv.Itoa(r.Attempt),
		terminal.Time(r.UpdatedAt, r.ReadAt, exact), terminal.Time(r.Deadline, r.ReadAt, exact),
	}
	if l.long {
		status := "-"
		if r.Result != nil {
			status = strconv.Itoa(r.Result.Status)
		}
		cells = append(cells, terminal.Exact(r.CreatedAt), strconv.FormatInt(r.Revision, 10), r.Effects.String(), status,
			terminal.OrDash(printable.Text(r.ProviderRef)), terminal.OrDash(terminal.Clip(printable.Text(r.Reason), 80)))
	}
	t.Add(cells...)
	return nil
}

// cursor returns the place where a list ended, as one word of a command line.
func cursor(ref retrysafe.Ref) string {
	return adminwire.FormatRef(ref)
}

func parseCursor(text string) (retrysafe.Ref, bool) { return adminwire.ParseRef(text) }
