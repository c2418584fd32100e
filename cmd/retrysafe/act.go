package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

// actHelp is for the commands with which somebody acts.
const actHelp = `Who acts says why: --why is kept in the audit, together with --by, which is you on
this machine unless it says otherwise. The record is changed only if it is still at
the revision that was seen: --revision, or the one that is shown before you confirm.
The same line with the same --revision may be repeated at any time: it is done once,
and says again how it ended.`

// actFlags are who does something, why, and to what as they saw it.
type actFlags struct {
	by, why, id string
	revision    int64
	asks, yes   bool
	format      *choice
}

// acts adds the flags. Who may do harm is asked first, or says --yes.
func acts(cmd *cobra.Command, asks bool) *actFlags {
	f := &actFlags{asks: asks, format: formats(cmd, "text", "json")}
	f.who(cmd)
	cmd.Flags().Int64Var(&f.revision, "revision", 0, "revision that you saw (default the one that is there)")
	cmd.Flags().BoolVar(&f.yes, "yes", false, map[bool]string{true: "do not ask", false: "nothing is asked here anyway"}[asks])
	return f
}

func (f *actFlags) who(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.by, "by", "", "who you are (default $USER@host)")
	cmd.Flags().StringVar(&f.why, "why", "", "why, for whoever reads the audit (required)")
	cmd.Flags().StringVar(&f.id, "id", "", "ID of the action, to repeat one that was cut short")
}

// check fills in who it is, and says what is missing.
func (f *actFlags) check(p *program) error {
	if strings.TrimSpace(f.why) == "" {
		return misused("--why is missing: it says why, for whoever reads the audit").hinted(`for example --why "ch_17 is in the provider's dashboard"`)
	}
	if f.by == "" {
		user := cmp.Or(p.getenv("USER"), p.getenv("LOGNAME"))
		if user == "" {
			return misused("nobody knows who you are: there is no $USER").hinted("use --by NAME")
		}
		f.by = user
		if host, err := os.Hostname(); err == nil {
			f.by += "@" + host
		}
	}
	return nil
}

// actionID is the ID of an action that was given none: all that it says. Repeated
// word for word it is the same action, for a revision never comes back.
func actionID(parts ...string) string {
	h := sha256.New()
	for _, part := range append([]string{"retrysafe command 1"}, parts...) {
		h.Write(binary.AppendUvarint(nil, uint64(len(part)))) // lengths first: no two lists read the same
		h.Write([]byte(part))
	}
	return base32.StdEncoding.EncodeToString(h.Sum(nil))[:26]
}

// A verb is what somebody does to a record.
type verb struct {
	name string
	// will says what it will do, before it is done.
	will string
	// more is what belongs to it besides the action, for its ID.
	more []string
	do   func(context.Context, *desk, operator.Action) (operator.Entry, error)
	// provider is the other side's own name for the effect.
	provider string
}

// act does a verb to the record that args name.
func (p *program) act(cmd *cobra.Command, stores *storeFlags, flags *actFlags, args []string, v verb) error {
	ctx := cmd.Context()
	if err := flags.check(p); err != nil {
		return err
	}
	d, err := stores.open(ctx, p)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	ref := refOf(args)
	r, err := d.Show(ctx, ref)
	if err != nil && flags.revision == 0 { // with a revision it may be a repetition, whatever has come of the key
		return d.noRecord(ref, err)
	}
	if flags.revision == 0 {
		flags.revision = r.Revision
	}
	if flags.asks && !flags.yes {
		if err := p.confirm(ctx, question(v.will, ref, &r, flags.revision)); err != nil {
			return err
		}
	}
	a := operator.Action{ID: flags.id, By: flags.by, Why: flags.why, Ref: ref, Revision: flags.revision, ProviderRef: v.provider}
	if a.ID == "" {
		a.ID = actionID(append([]string{v.name, a.By, a.Why, ref.Scope, ref.Key, strconv.FormatInt(a.Revision, 10), a.ProviderRef}, v.more...)...)
	}
	e, err := v.do(ctx, d, a)
	name := word(named(ref.Scope)) + " " + word(named(ref.Key))
	return p.report(flags, acted{what: named(ref.Scope) + " " + named(ref.Key), id: a.ID, look: "retrysafe keys show" + d.again + " " + name}, e, err)
}

// acting is a command that does something to a record and needs no more than that.
func (p *program) acting(stores *storeFlags, do func(*operator.Desk, context.Context, operator.Action) (operator.Entry, error), asks bool, name, will string, cmd *cobra.Command) *cobra.Command {
	cmd.Use = name + " SCOPE KEY"
	cmd.Args = exactly("SCOPE", "KEY")
	flags := acts(cmd, asks)
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error {
		return p.act(cmd, stores, flags, args, verb{
			name: name, will: will,
			do: func(ctx context.Context, d *desk, a operator.Action) (operator.Entry, error) {
				return do(d.Desk, ctx, a)
			},
		})
	})
	return cmd
}

// question shows what somebody is about to act on.
func question(will string, ref retrysafe.Ref, r *retrysafe.Record, revision int64) string {
	now := "it is not there any more"
	if r.Ref == ref {
		now = fmt.Sprintf("%s, attempt %d of %s, last changed %s", stateOf(r), r.Attempt, cmp.Or(visible(r.Operation), "an operation without a name"), ago(r.UpdatedAt, r.ReadAt))
		if r.Revision != revision {
			now += fmt.Sprintf("; it is at revision %d now", r.Revision)
		}
	}
	return fmt.Sprintf("%s %s\n  %s\n  revision %d\n%s", named(ref.Scope), named(ref.Key), now, revision, will)
}

// refOf returns the key that two arguments name.
func refOf(args []string) retrysafe.Ref {
	return retrysafe.Ref{Scope: unnamed(args[0]), Key: unnamed(args[1])}
}

// noRecord says that there is nothing to act on.
func (d *desk) noRecord(ref retrysafe.Ref, err error) error {
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		return failed(exitNo, "there is no key %s in the scope %s: it was forgotten, or never was", named(ref.Key), named(ref.Scope)).
			hinted("see what is there: retrysafe keys list%s --scope %s", d.again, word(named(ref.Scope)))
	case errors.Is(err, retrysafe.ErrUnreadable):
		return failed(exitNo, "the record cannot be read: %v", err).hinted("upgrade this program, or give it the key with --keys-file; until then nobody can run it or act on it")
	default:
		return d.trouble(err)
	}
}

// acted is what was acted on, under which ID, and the command that shows it.
type acted struct{ what, id, look string }

// report says how an action ended.
func (p *program) report(flags *actFlags, on acted, e operator.Entry, err error) error {
	refused, isRefused := errors.AsType[*operator.RefusedError](err)
	switch {
	case isRefused:
		e = refused.Entry
	case errors.Is(err, operator.ErrInvalid):
		return misused("%v", err)
	case errors.Is(err, retrysafe.ErrMismatch):
		return misused("%v", err).hinted("leave --id away for a new action")
	case errors.Is(err, retrysafe.ErrUnavailable):
		return failed(exitStore, "the store does not answer, and nothing was done: %v", err)
	case err != nil:
		return failed(exitUnsure, "nobody can say whether it was done: %v", err).
			hinted("find out with the same line and: --by %s --revision %d --id %s", word(flags.by), flags.revision, word(on.id))
	}
	if flags.format.value == "json" {
		if err := writeJSON(p.stdout, entryJSON{e, e.Replayed}); err != nil {
			return err
		}
	} else if !isRefused {
		fmt.Fprintln(p.stdout, done(on.what, &e))
	}
	if isRefused {
		return failed(exitNo, "refused: %v", plainly(errors.New(e.Text))).hinted("%s", whatNow(e.Code, on.look))
	}
	return nil
}

// entryJSON is an entry of the audit, and whether it is that of an earlier command.
type entryJSON struct {
	operator.Entry
	replayed bool
}

// MarshalJSON adds to what the audit stores.
func (e entryJSON) MarshalJSON() ([]byte, error) {
	b, err := e.Entry.MarshalJSON()
	if err != nil || !e.replayed {
		return b, err
	}
	return append(b[:len(b)-1], `,"replayed":true}`...), nil
}

// past is what a verb has done.
var past = map[string]string{
	"resolve": "resolved", "decline": "declined", "release": "released", "forget": "forgotten", "erase": "erased",
	"redrive": "to be asked about again", "redrive letter": "sent again", "drop letter": "dropped", "skip message": "buried as a dead letter",
	"quarantine": "quarantined",
}

// done says what was done.
func done(what string, e *operator.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", what, cmp.Or(past[e.Verb], visible(e.Verb)))
	if e.To.State.Valid() {
		fmt.Fprintf(&b, "; it is %s now", e.To)
	}
	if e.Status != 0 && (e.Verb == "resolve" || e.Verb == "decline") {
		fmt.Fprintf(&b, ", and every retry gets its %d", e.Status)
	}
	if e.Outcome == operator.Gone {
		fmt.Fprintf(&b, "; there is nothing left to act on: %s", visible(e.Text))
	}
	if e.Replayed {
		fmt.Fprintf(&b, " (this was done before, by this same action, at %s)", exact(e.At))
	}
	fmt.Fprintf(&b, "\naction %s by %s", visible(e.ID), visible(e.By))
	return b.String()
}

// whatNow says what to do about a refusal. Look is the command that shows what was
// acted on.
func whatNow(code, look string) string {
	switch code {
	case "stale":
		return "look again, somebody else may have done it: " + look
	case "live":
		return "wait for the end of its lease"
	case "state":
		return "see what may be done: " + look
	case "window":
		return "if it has not happened, --force sends it again"
	case "unreadable":
		return "upgrade this program, or give it the key with --keys-file"
	case "contradiction":
		return "it is unknown now, and nothing runs it: look for two effects at the other side, then resolve it"
	default: // not found
		return "check its name"
	}
}
