package keys

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

// A listing is what the flags of keys list ask for.
type listing struct {
	filter  operator.Filter
	states  []string
	keyHash string
	after   string
	all     bool
	long    bool
	hashed  bool
	format  *command.Choice
}

func listCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List keys: all, or those that are stuck",
		Long: `Lists keys, in the order of the store. Times are by the clock of the store. With --hash
keys are shown as logs show them, so that readers of the list cannot use them.

Stuck keys are found by --dead (unknown, and no resolver is asked again: a person has
to look), by --state unknown (it may have happened, and resolvers are asked), and by
--state in_progress --due (the lease of the attempt has ended; no sweeper runs).`,
		Example: `  # outcomes that need a person
  retrysafe keys list --dead
  # attempts whose lease has ended, and requests that no worker has claimed
  retrysafe keys list --state in_progress --state accepted --due
  # the key that a log line calls 55679e8a463c13f3
  retrysafe keys list --key-hash 55679e8a463c13f3
  # for a script: all keys of one tenant, one JSON object in each line
  retrysafe keys list --scope tenant-a --all --format json
  # for a spreadsheet, without the keys themselves
  retrysafe keys list --state unknown --hash --format csv`,
		Args: command.Args(),
		RunE: command.Run(func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context(), env, target) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&l.filter.Scope, "scope", "", "only keys of this scope")
	flags.StringArrayVar(&l.states, "state", nil, "only keys in this state; may be repeated")
	flags.BoolVar(&l.filter.Due, "due", false, "only keys whose deadline has passed, by the clock of the store")
	flags.BoolVar(&l.filter.Dead, "dead", false, "only unknown outcomes that need a person")
	flags.BoolVar(&l.filter.System, "system", false, "include retrysafe's own keys")
	flags.StringVar(&l.keyHash, "key-hash", "", "only keys with this hash, which logs show")
	flags.IntVar(&l.filter.Limit, "limit", 100, "how many at most")
	flags.BoolVar(&l.all, "all", false, "all of them, without a limit")
	flags.StringVar(&l.after, "after", "", "continue a list: the value that it printed at its end")
	flags.BoolVar(&l.long, "long", false, "exact times, and more columns")
	flags.BoolVar(&l.hashed, "hash", false, "show hashes instead of keys")
	l.format = command.NewFormat(cmd, "table", "json", "csv")
	command.Complete(cmd, "state", stateNames()...)
	return cmd
}

func stateNames() (names []string) {
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		names = append(names, s.String())
	}
	return names
}

// parse checks the flags and completes the filter.
func (l *listing) parse() error {
	l.filter.Scope = printable.ParseName(l.filter.Scope)
	for _, name := range l.states {
		var found bool
		for s := retrysafe.StateAccepted; s.Valid(); s++ {
			if s.String() == name {
				l.filter.States, found = append(l.filter.States, s), true
			}
		}
		if !found {
			return exit.Usagef("there is no state %q", name).Hintf("they are %s", strings.Join(stateNames(), ", "))
		}
	}
	if l.filter.Limit < 1 {
		return exit.Usagef("--limit %d is not above zero", l.filter.Limit).Hintf("--all lists everything")
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
	s, err := target.Open(ctx, env)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	columns := []string{"SCOPE", "KEY", "STATE", "OPERATION", "TRY", "CHANGED", "DEADLINE"}
	if l.long {
		columns = append(columns, "CREATED", "REVISION", "EFFECTS", "STATUS", "PROVIDER REF", "REASON")
	}
	t := terminal.NewTable(env.Out, l.format.Is("csv"), columns...)
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
			fmt.Fprintln(env.Err, "no keys")
		}
	}
	if more && !l.all {
		fmt.Fprintf(env.Err, "there is more: the same with --after %s\n", cursor(f.After))
	}
	return nil
}

// add adds one record to the output.
func (l *listing) add(env *command.Env, t *terminal.Table, r *retrysafe.Record) error {
	if l.format.Is("json") {
		return terminal.WriteJSON(env.Out, newRecordJSON(r, l.hashed, false))
	}
	key := printable.Name(r.Key)
	if l.hashed {
		key = retrysafe.HashKey(r.Key)
	}
	exact := l.long || l.format.Is("csv")
	cells := []string{
		printable.Name(r.Scope), key, stateText(r), printable.Text(r.Operation), strconv.Itoa(r.Attempt),
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
	b := binary.AppendUvarint(nil, uint64(len(ref.Scope)))
	return base64.RawURLEncoding.EncodeToString(append(append(b, ref.Scope...), ref.Key...))
}

func parseCursor(text string) (ref retrysafe.Ref, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return ref, false
	}
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return ref, false
	}
	b = b[size:]
	return retrysafe.Ref{Scope: string(b[:n]), Key: string(b[n:])}, true
}
