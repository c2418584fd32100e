package keys

import (
	"cmp"
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

// A follower shows the changes of records as they happen.
type follower struct {
	*selectFlags
	every  time.Duration
	hashed bool
	format *command.Choice
	filter operator.Filter
	// from is the time of the oldest change that is not shown yet. Shown has the
	// changes since then that are: a transaction may commit later than others that
	// began after it.
	from  time.Time
	shown map[retrysafe.Fence]time.Time
	// begins says that nothing was read yet, and that changes before now do not count.
	begins bool
}

// overlap is how long a change may become visible after its time.
const overlap = 30 * time.Second

func tailCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	var f follower
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the changes of keys, until it is interrupted",
		Long: `Shows each change of a key that happens from now on: what it has become, and why. It
reads the store again and again, and takes no more than a tenth of the time for it: a
large store is read less often than --every says. Of a key that changes twice between
two readings the last change is shown.

--since shows the changes since a time first. ` + selectingTail,
		Example: `  retrysafe keys tail
  # outcomes that become unknown, for a script
  retrysafe keys tail --state unknown -o json
  # with hashes instead of keys, and the changes of the last ten minutes first
  retrysafe keys tail --hash --since 10m`,
		Args: command.Args(),
	}
	f.selectFlags = addSelectFlags(cmd)
	cmd.Flags().Lookup("since").Usage = "begin with the changes since a time, or since so long ago"
	cmd.Flags().Lookup("until").Hidden = true
	cmd.Flags().DurationVar(&f.every, "every", time.Second, "how often to read the store")
	cmd.Flags().BoolVar(&f.hashed, "hash", false, "show hashes instead of keys")
	f.format = command.NewFormat(cmd, "text", "json")
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) (err error) {
		if f.filter, err = f.selectFlags.filter(); err != nil {
			return err
		}
		if !f.filter.Until.IsZero() {
			return exit.Usagef("--until is not for a command that follows changes")
		}
		if f.every <= 0 {
			return exit.Usagef("--every %v is not above zero", f.every)
		}
		s, err := open(cmd.Context(), env, target)
		if err != nil {
			return err
		}
		defer s.Close(cmd.Context())
		return f.run(cmd.Context(), env, s)
	})
	return cmd
}

const selectingTail = `--operation and --reason are compared as
a whole; an asterisk in them stands for any text. --upstream-status is the status
of your service when the attempt failed.`

// run reads the store until ctx ends, which is how this command is meant to end.
func (f *follower) run(ctx context.Context, env *command.Env, s *session) error {
	f.from, f.filter.Since = f.filter.Since, time.Time{}
	f.shown, f.begins = map[retrysafe.Fence]time.Time{}, f.from.IsZero()
	if f.format.Is("text") {
		fmt.Fprintln(env.Err, "following the changes of keys; interrupt it to end")
	}
	for {
		began := time.Now()
		changed, err := f.read(ctx, s)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interruption is how this command ends
		case err != nil:
			return s.StoreError(err)
		}
		for i := range changed {
			if err := f.write(env, &changed[i]); err != nil {
				return err
			}
		}
		select {
		case <-time.After(max(f.every, 9*time.Since(began))):
		case <-ctx.Done():
			return nil
		}
	}
}

// read returns the changes that were not shown, the oldest first.
func (f *follower) read(ctx context.Context, s *session) (changed []adminwire.View, err error) {
	page, next := f.filter, f.from
	page.Limit = 2000
	for more, first := true, true; more; {
		got, err := s.List(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range got.Records {
			r := got.Records[i]
			if first && f.begins {
				f.from = r.ReadAt
			}
			if first {
				next, first = later(f.from, r.ReadAt.Add(-overlap)), false
			}
			if _, ok := f.shown[r.Fence()]; ok || r.UpdatedAt.Before(f.from) {
				continue
			}
			f.shown[r.Fence()] = r.UpdatedAt
			r.Request, r.Checkpoint = nil, retrysafe.Checkpoint{}
			changed = append(changed, r)
		}
		page.After, more = got.Next, got.More
	}
	f.from, f.begins = next, false
	for fence, at := range f.shown {
		if at.Before(f.from) {
			delete(f.shown, fence)
		}
	}
	slices.SortStableFunc(changed, func(a, b adminwire.View) int {
		return cmp.Or(a.UpdatedAt.Compare(b.UpdatedAt), cmp.Compare(a.Revision, b.Revision))
	})
	return changed, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// write shows one change.
func (f *follower) write(env *command.Env, r *adminwire.View) error {
	if f.format.Is("json") {
		return terminal.WriteJSON(env.Out, newRecordJSON(r, f.hashed, false))
	}
	key := printable.Name(r.Key)
	if f.hashed {
		key = retrysafe.HashKey(r.Key)
	}
	line := fmt.Sprintf("%s  %s %s  %s  %s, attempt %d", terminal.Exact(r.UpdatedAt), printable.Name(r.Scope), key, stateText(&r.Record),
		terminal.OrDash(printable.Text(r.Operation)), r.Attempt)
	if r.Result != nil {
		line += ", answer " + strconv.Itoa(r.Result.Status)
	}
	if r.Reason != "" {
		line += ": " + terminal.Clip(printable.Text(r.Reason), 200)
	}
	_, err := fmt.Fprintln(env.Out, line)
	return err
}
