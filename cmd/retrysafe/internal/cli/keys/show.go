package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/outbox"
)

func showCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	var body, long bool
	cmd := &cobra.Command{
		Use:   "show [SCOPE] KEY",
		Short: "Show the record of a key, what its state means and what you may do",
		Long: `Shows everything that is stored about one key, explains its state, and prints the
exact command for each thing that you may do about it.

` + keyArgHelp + ` If the key is in several scopes, they are
listed, and --scope names one.

A scope or key with special characters is shown in double quotes and escaped, and may
be given so: '"a\tb"'.`,
		Example: `  retrysafe keys show tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324
  # the key that a log line calls 55679e8a463c13f3, in whatever scope it is
  retrysafe keys show 55679e8a463c13f3
  # with the body of the stored answer
  retrysafe keys show tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --body
  # for a script
  retrysafe keys show tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --format json`,
		Args: oneKey,
	}
	key := addKeyArg(cmd)
	cmd.Flags().BoolVar(&body, "body", false, "include the body of the stored answer")
	cmd.Flags().BoolVar(&long, "long", false, "exact times")
	format := command.NewFormat(cmd, "text", "json")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		s, err := open(ctx, env, target)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		ref, err := key.find(ctx, env, s, args)
		if err != nil {
			return err
		}
		r, err := s.Show(ctx, ref)
		if body && err == nil {
			r, err = s.Contents(ctx, ref, "retrysafe keys show --body")
		}
		if err != nil && (!errors.Is(err, retrysafe.ErrUnreadable) || r.Revision == 0) {
			return cannotLoad(s, ref, err)
		}
		if err != nil {
			r.Version = 0 // shown as unreadable: parts of it may be wrong
		}
		receipts, err := s.Receipts(ctx, outbox.ReceiptQuery{Settled: ref, Limit: maxReceipts})
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return s.StoreError(err)
		}
		downstream := downstreamKey(ctx, s, ref)
		if format.Is("json") {
			j := newRecordJSON(&r, false, body)
			j.DownstreamKey = downstream
			for i := range receipts {
				j.Receipts = append(j.Receipts, newReceiptJSON(&receipts[i]))
			}
			return terminal.WriteJSON(env.Out, j)
		}
		writeRecord(env.Out, &r, downstream, receipts, body, long)
		a := advise(&r.Record, s.Again())
		action.WriteOptions(env.Out, s.Person(), a.meaning, a.options)
		return nil
	})
	return cmd
}

// maxReceipts is how many receipts are shown with a key. Few keys are settled by more than
// one message.
const maxReceipts = 20

// downstreamKey returns the key that the service behind a gateway gets by derive_key, which
// the provider may know instead of the client's. It is empty for a store that no gateway
// has noted its settings in: other programs derive their keys by names of their own.
func downstreamKey(ctx context.Context, s *session, ref retrysafe.Ref) string {
	if f, err := s.Facts(ctx); err != nil || f.Identity == "" || ref.IsSystem() {
		return ""
	}
	return retrysafe.DownstreamKey(config.Namespace, ref, config.UpstreamCall)
}

// writeRecord writes everything about a record, for people. Receipts are of the messages
// that settled it.
func writeRecord(w io.Writer, r *adminwire.View, downstream string, receipts []outbox.KeptReceipt, body, long bool) {
	d := terminal.NewDetails(w)
	d.Add("scope", "%s", printable.Name(r.Scope))
	d.Add("key", "%s", printable.Name(r.Key))
	d.Add("hash", "%s (as logs show it)", retrysafe.HashKey(r.Key))
	if downstream != "" {
		d.Add("downstream key", "%s (what the service gets by derive_key)", downstream)
	}
	d.Add("operation", "%s", terminal.OrDash(printable.Text(r.Operation)))
	d.Add("state", "%s", stateText(&r.Record))
	d.Add("attempt", "%d, effects %s, a lapsed attempt: %s", r.Attempt, r.Effects, r.Lapse)
	d.Add("created", "%s", terminal.Time(r.CreatedAt, r.ReadAt, long))
	d.Add("changed", "%s", terminal.Time(r.UpdatedAt, r.ReadAt, long))
	d.Add("deadline", "%s (%s)", terminal.Time(r.Deadline, r.ReadAt, long), deadlineMeaning(&r.Record))
	d.Add("revision", "%d", r.Revision)
	if r.ProviderRef != "" {
		d.Add("provider ref", "%s", printable.Text(r.ProviderRef))
	}
	if r.Reason != "" {
		d.Add("reason", "%s", printable.Text(r.Reason))
	}
	if n := r.RequestSize(); n > 0 {
		d.Add("request", "%s, stored for a worker", terminal.Count(n, "byte", "bytes"))
	}
	if !r.Checkpoint.IsZero() {
		d.Add("checkpoint", "%s", checkpointText(r))
	}
	if r.Result != nil {
		d.Add("answer", "%d, body of %s", r.Result.Status, terminal.Count(r.BodySize(), "byte", "bytes"))
		for _, name := range slices.Sorted(maps.Keys(r.Result.Header)) {
			for _, value := range r.Result.Header[name] {
				d.Add("", "%s: %s", printable.Text(name), printable.Text(value))
			}
		}
	}
	for i := range receipts {
		m := &receipts[i]
		text := fmt.Sprintf("message %d, %s, delivered %s", m.ID, printable.Text(m.Topic), terminal.Time(m.Delivered, r.ReadAt, long))
		if m.ProviderRef != "" {
			text += ", provider ref " + printable.Text(m.ProviderRef)
		}
		d.Add(first(i, "receipts"), "%s", text)
	}
	if trace := traceID(&r.Record); trace != "" {
		d.Add("trace", "%s, of the first attempt", trace)
	}
	for i, n := range notesOf(&r.Record) {
		text := printable.Text(n.Text)
		if n.ID != "" {
			text += " [action " + printable.Text(n.ID) + "]"
		}
		d.Add(first(i, "notes"), "%s, by %s, %s: %s", terminal.Time(n.At, r.ReadAt, long), printable.Text(n.By), n.State, text)
	}
	_ = d.Flush() // an error of standard output is not reported
	if body && r.Result != nil {
		fmt.Fprintf(w, "\n%s\n", strings.TrimRight(printable.Lines(string(r.Result.Body)), "\n"))
	}
}

// traceID returns the id of the trace of the first attempt, if it is kept.
func traceID(r *retrysafe.Record) string {
	if parts := strings.Split(r.Trace(), "-"); len(parts) == 4 {
		return parts[1]
	}
	return ""
}

// notesOf returns the notes of a record without the first one that keeps its trace.
func notesOf(r *retrysafe.Record) []retrysafe.Note {
	if r.Trace() != "" {
		return r.Inquiry.Notes[1:]
	}
	return r.Inquiry.Notes
}

// first returns the name of a list before its first line, and nothing before the others.
func first(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

// deadlineMeaning returns what happens at the deadline of a record.
func deadlineMeaning(r *retrysafe.Record) string {
	if r.State == retrysafe.StateUnknown && r.Inquiry.Dead {
		return "no resolver is asked again"
	}
	switch r.State {
	case retrysafe.StateAccepted:
		return "then it is given up"
	case retrysafe.StateInProgress:
		return "of its lease"
	case retrysafe.StateUnknown:
		return "then resolvers, if any run, are asked"
	case retrysafe.StateExpired:
		return "then it is deleted"
	default:
		return "then it is forgotten"
	}
}

// checkpointText returns the steps that an operation has made.
func checkpointText(r *adminwire.View) string {
	steps := r.Steps()
	if len(steps) == 0 {
		return fmt.Sprintf("after %s, %s", terminal.OrDash(printable.Text(r.Checkpoint.Phase)), terminal.Count(r.CheckpointSize(), "byte", "bytes"))
	}
	var parts []string
	for i := range steps {
		s := &steps[i]
		text := printable.Text(s.Name)
		if s.Open {
			text += fmt.Sprintf(" (called %s, outcome unknown)", terminal.Count(s.Calls, "time", "times"))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", then ")
}
