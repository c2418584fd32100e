package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

// An operation is one change that an operator may make to a record.
type operation struct {
	verb string
	// consequence is shown before the change is confirmed.
	consequence string
	// providerRef is the other side's own name for the effect.
	providerRef string
	// arguments are what the operation consists of besides its action. They are part of
	// the ID of the action.
	arguments []string
	// outdates says that caches may hold an answer that the operation changes.
	outdates bool
	key      *keyArg
	answer   *retrysafe.Result // for retries, if the operation gives one
	noBody   bool              // the answer has none on purpose
}

// run makes the change to the record that args name.
func (o *operation) run(ctx context.Context, env *command.Env, target *stores.Flags, flags *action.Flags, args []string) error {
	s, err := openToAct(ctx, env, target, flags)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	ref, err := o.key.find(ctx, env, s, args)
	if err != nil {
		return err
	}
	r, err := s.Show(ctx, ref)
	if err != nil && flags.Revision == 0 { // with a revision it may repeat an action whose key is gone
		return cannotLoad(s, ref, err)
	}
	if flags.Revision == 0 {
		flags.Revision = r.Revision
	}
	if flags.Ask && !flags.Yes {
		if err := env.Confirm(ctx, question(o.consequence, ref, &r.Record, flags.Revision)); err != nil {
			return err
		}
	}
	a := operator.Action{ID: flags.ID, By: flags.By, Why: flags.Why, Ref: ref, Revision: flags.Revision, ProviderRef: o.providerRef, Bodiless: o.noBody}
	if a.ID == "" {
		a.ID = action.ID(append([]string{o.verb, a.By, a.Why, ref.Scope, ref.Key, strconv.FormatInt(a.Revision, 10), a.ProviderRef}, o.arguments...)...)
	}
	e, err := s.Act(ctx, o.verb, a, o.answer)
	on := action.Target{Name: keyref.Text(ref), ID: a.ID, Show: "retrysafe keys show" + s.Again() + " " + keyref.ShellWords(ref)}
	if err := action.Report(env, flags, on, e, err); err != nil || flags.Format.Is("json") {
		return err
	}
	if o.outdates {
		fmt.Fprintln(env.Out, reach(ctx, s))
	}
	return nil
}

// openToAct opens what an action works on, and completes its author.
func openToAct(ctx context.Context, env *command.Env, target *stores.Flags, flags *action.Flags) (*session, error) {
	flags.ByToken = target.AdminURL != ""
	if err := flags.Complete(env); err != nil {
		return nil, err
	}
	s, err := open(ctx, env, target)
	if err != nil {
		return nil, err
	}
	if err := flags.Adopt(s.Person()); err != nil {
		s.Close(ctx)
		return nil, err
	}
	return s, nil
}

// reach says when running gateways serve what an operation has made of an answer.
func reach(ctx context.Context, s *session) string {
	if f, err := s.Facts(ctx); err == nil && f.Store.Announces {
		return "running gateways follow within a second"
	}
	return "gateways with a cache may return the old answer for as long as their cache.max_age, by default a minute: this store cannot tell them"
}

// simpleCommand completes a command whose operation takes no arguments of its own. It
// asks for a confirmation if there is a consequence.
func simpleCommand(env *command.Env, target *stores.Flags, verb, consequence string, cmd *cobra.Command) *cobra.Command {
	cmd.Use = verb + " [SCOPE] KEY"
	cmd.Args = oneKey
	flags, key := action.AddFlags(cmd, consequence != ""), addKeyArg(cmd)
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		o := operation{verb: verb, consequence: consequence, outdates: verb == "forget" || verb == "erase", key: key}
		return o.run(cmd.Context(), env, target, flags, args)
	})
	return cmd
}

// bulkCommand is [simpleCommand] for a verb that changes many keys, too. Many is the
// consequence for them.
func bulkCommand(env *command.Env, target *stores.Flags, verb, consequence, many string, cmd *cobra.Command) *cobra.Command {
	cmd.Use = verb + " {[SCOPE] KEY | FILTERS}"
	flags, key, bulkFlags := action.AddFlags(cmd, consequence != ""), addKeyArg(cmd), addBulkFlags(cmd)
	cmd.Args = keyOrFilters(bulkFlags)
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			o := operation{verb: verb, consequence: consequence, key: key}
			return o.run(cmd.Context(), env, target, flags, args)
		}
		b := bulk{bulkFlags: bulkFlags, flags: flags, batch: operator.Batch{Verb: verb}, consequence: many}
		b.batch.Filter.Scope = printable.ParseName(key.scope)
		return b.run(cmd.Context(), env, target)
	})
	return cmd
}

// question returns the record that is about to be changed, and the consequence.
func question(consequence string, ref retrysafe.Ref, r *retrysafe.Record, revision int64) string {
	now := "it is not there any more"
	if r.Ref == ref {
		now = fmt.Sprintf("%s, attempt %d of %s, last changed %s", stateText(r), r.Attempt,
			cmp.Or(printable.Text(r.Operation), "an operation without a name"), terminal.Ago(r.UpdatedAt, r.ReadAt))
		if r.Revision != revision {
			now += fmt.Sprintf("; it is at revision %d now", r.Revision)
		}
	}
	return fmt.Sprintf("%s\n  %s\n  revision %d\n%s", keyref.Text(ref), now, revision, consequence)
}

// cannotLoad returns the error for a record that cannot be loaded.
func cannotLoad(s *session, ref retrysafe.Ref, err error) error {
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		return exit.Errorf(exit.No, "there is no key %s in the scope %s: it was forgotten, or never existed", printable.Name(ref.Key), printable.Name(ref.Scope)).
			Hintf("see what is there: retrysafe keys list%s --scope %s", s.Again(), terminal.ShellWord(printable.Name(ref.Scope)))
	case errors.Is(err, retrysafe.ErrUnreadable):
		return exit.Errorf(exit.No, "the record cannot be read: %v", err).
			Hintf("upgrade this program, or name the key with --keys-file; until then it cannot run and cannot be changed")
	default:
		return s.StoreError(err)
	}
}
