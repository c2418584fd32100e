package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

// listing is how keys are listed.
type listing struct {
	filter  operator.Filter
	states  []string
	keyHash string
	after   string
	all     bool
	long    bool
	hashed  bool
	format  *choice
}

func (p *program) keysList(stores *storeFlags) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List keys: all, or those that are stuck",
		Long: `Lists keys, in the store's own order. Times are by the store's clock. With --hash
keys are named as logs name them, and cannot be used by whoever sees the list.

What is stuck is found by --dead (unknown, and nobody will be asked again: a person
has to look), by --state unknown (it may have happened, and resolvers are asked), and
by --state in_progress --due (its owner fell silent; a sweeper is missing).`,
		Example: `  # what needs a person
  retrysafe keys list --dead
  # attempts whose owner fell silent, and work that no worker took up
  retrysafe keys list --state in_progress --state accepted --due
  # the key that a log line calls 55679e8a463c13f3
  retrysafe keys list --key-hash 55679e8a463c13f3
  # for a script: everything of one tenant, one JSON object in each line
  retrysafe keys list --scope tenant-a --all --format json
  # for a spreadsheet, without the keys themselves
  retrysafe keys list --state unknown --hash --format csv`,
		Args: exactly(),
		RunE: runs(func(cmd *cobra.Command, _ []string) error { return p.listKeys(cmd.Context(), stores, &l) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&l.filter.Scope, "scope", "", "only keys of this scope")
	flags.StringArrayVar(&l.states, "state", nil, "only keys in this state; may be repeated")
	flags.BoolVar(&l.filter.Due, "due", false, "only keys whose time has come, by the store's clock")
	flags.BoolVar(&l.filter.Dead, "dead", false, "only unknown outcomes that need a person")
	flags.BoolVar(&l.filter.System, "system", false, "retrysafe's own keys too")
	flags.StringVar(&l.keyHash, "key-hash", "", "only keys that logs call so")
	flags.IntVar(&l.filter.Limit, "limit", 100, "how many at most")
	flags.BoolVar(&l.all, "all", false, "all of them, however many")
	flags.StringVar(&l.after, "after", "", "go on behind a list: what it said at its end")
	flags.BoolVar(&l.long, "long", false, "exact times, and more columns")
	flags.BoolVar(&l.hashed, "hash", false, "name keys by their hashes only")
	l.format = formats(cmd, "table", "json", "csv")
	complete(cmd, "state", stateNames()...)
	return cmd
}

func stateNames() (names []string) {
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		names = append(names, s.String())
	}
	return names
}

// parse checks what the flags say and makes a filter of them.
func (l *listing) parse() error {
	l.filter.Scope = unnamed(l.filter.Scope)
	for _, name := range l.states {
		var found bool
		for s := retrysafe.StateAccepted; s.Valid(); s++ {
			if s.String() == name {
				l.filter.States, found = append(l.filter.States, s), true
			}
		}
		if !found {
			return misused("there is no state %q", name).hinted("they are %s", strings.Join(stateNames(), ", "))
		}
	}
	if l.filter.Limit < 1 {
		return misused("--limit %d is not above zero", l.filter.Limit).hinted("--all lists everything")
	}
	if l.after != "" {
		ref, ok := parseCursor(l.after)
		if !ok {
			return misused("--after %q is not what a list says at its end", l.after)
		}
		l.filter.After = ref
	}
	return nil
}

func (p *program) listKeys(ctx context.Context, stores *storeFlags, l *listing) error {
	if err := l.parse(); err != nil {
		return err
	}
	d, err := stores.open(ctx, p)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	columns := []string{"SCOPE", "KEY", "STATE", "OPERATION", "TRY", "CHANGED", "DEADLINE"}
	if l.long {
		columns = append(columns, "CREATED", "REVISION", "EFFECTS", "STATUS", "PROVIDER REF", "REASON")
	}
	t := newTable(p.stdout, l.format, columns...)
	left, f, more := l.filter.Limit, l.filter, true
	for found := 0; more && (l.all || left > 0); {
		if f.Limit = left; l.all || l.keyHash != "" {
			f.Limit = 1000
		}
		page, err := d.List(ctx, f)
		if err != nil {
			return d.trouble(err)
		}
		for i := range page.Records {
			r := &page.Records[i]
			if l.keyHash != "" && retrysafe.HashKey(r.Key) != l.keyHash {
				continue
			}
			left--
			found++
			if err := l.add(p, t, r); err != nil {
				return err
			}
		}
		if err := t.flush(); err != nil {
			return err
		}
		if f.After, more = page.Next, page.More; !more && found == 0 {
			fmt.Fprintln(p.stderr, "no keys")
		}
	}
	if more && !l.all {
		fmt.Fprintf(p.stderr, "there is more: the same with --after %s\n", cursor(f.After))
	}
	return nil
}

// add adds one record to the output.
func (l *listing) add(p *program, t *table, r *retrysafe.Record) error {
	if l.format.value == "json" {
		return writeJSON(p.stdout, newRecordJSON(r, l.hashed, false))
	}
	key := named(r.Key)
	if l.hashed {
		key = retrysafe.HashKey(r.Key)
	}
	exactly := l.long || l.format.value == "csv"
	cells := []string{
		named(r.Scope), key, stateOf(r), visible(r.Operation), strconv.Itoa(r.Attempt),
		when(r.UpdatedAt, r.ReadAt, exactly), when(r.Deadline, r.ReadAt, exactly),
	}
	if l.long {
		status := "-"
		if r.Result != nil {
			status = strconv.Itoa(r.Result.Status)
		}
		cells = append(cells, exact(r.CreatedAt), strconv.FormatInt(r.Revision, 10), r.Effects.String(), status, orNone(visible(r.ProviderRef)), orNone(clipped(visible(r.Reason), 80)))
	}
	t.add(cells...)
	return nil
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// cursor is where a list ended, as a word for a command line.
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
