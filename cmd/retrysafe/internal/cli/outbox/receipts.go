package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/outbox"
)

// A receiptListing is what the flags of outbox receipts ask for.
type receiptListing struct {
	query     outbox.ReceiptQuery
	long, all bool
	format    *command.Choice
}

func receiptsCommand(env *command.Env, f *boxFlags) *cobra.Command {
	var l receiptListing
	cmd := &cobra.Command{
		Use:   "receipts [SCOPE KEY]",
		Short: "List receipts of messages that were delivered",
		Long: `Lists what is kept of messages that were delivered, the oldest first: the key that each
settled, and the receiver's own name for the effect. Receipts are there if the worker
keeps them (KeepReceipts), until they expire. With SCOPE and KEY it lists those of the
messages that settled this key.`,
		Example: `  # which key a provider's id belongs to
  retrysafe outbox receipts --provider-ref ch_3OoKzj
  # what was sent for a key
  retrysafe outbox receipts tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324
  # for a script
  retrysafe outbox receipts --all --format json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return exit.Usagef("a key is named by its SCOPE and its KEY; %d arguments are given", len(args)).
					Hintf("retrysafe outbox receipts SCOPE KEY, or without both for all receipts")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&l.query.ProviderRef, "provider-ref", "", "only those with this name of the receiver for the effect")
	flags.Int64Var(&l.query.After, "after", 0, "continue a list after this ID")
	flags.IntVar(&l.query.Limit, "limit", 100, "how many at most")
	flags.BoolVar(&l.all, "all", false, "all of them, without a limit")
	flags.BoolVar(&l.long, "long", false, "exact times, and more columns")
	l.format = command.NewFormat(cmd, "table", "json", "csv")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 {
			l.query.Settled = keyref.Parse(args)
		}
		return l.run(cmd.Context(), env, f)
	})
	return cmd
}

func (l *receiptListing) run(ctx context.Context, env *command.Env, f *boxFlags) error {
	limit := l.query.Limit
	if limit < 1 {
		return exit.Usagef("--limit %d is not above zero", limit).Hintf("--all lists everything")
	}
	s, err := f.open(ctx, env)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	columns := []string{"ID", "TOPIC", "DELIVERED", "PROVIDER REF", "SETTLED"}
	if l.long {
		columns = append(columns, "KEY", "EXPIRES")
	}
	t := terminal.NewTable(env.Out, l.format.Is("csv"), columns...)
	const page = 500
	for found := 0; ; {
		q := l.query
		q.Limit = page
		if !l.all {
			q.Limit = min(page, limit-found+1) // one more, to know whether there is one
		}
		some, err := s.Receipts(ctx, q)
		if errors.Is(err, errors.ErrUnsupported) {
			return exit.Errorf(exit.No, "%v", err)
		}
		if err != nil {
			return s.StoreError(err)
		}
		for i := range some {
			if !l.all && found == limit {
				fmt.Fprintf(env.Err, "there is more: the same with --after %d\n", l.query.After)
				return t.Flush()
			}
			l.query.After = some[i].ID
			found++
			if err := l.add(env, t, &some[i]); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if len(some) < q.Limit {
			if found == 0 {
				fmt.Fprintln(env.Err, "none")
			}
			return nil
		}
	}
}

// add adds one receipt to the output.
func (l *receiptListing) add(env *command.Env, t *terminal.Table, r *outbox.KeptReceipt) error {
	if l.format.Is("json") {
		return terminal.WriteJSON(env.Out, newReceiptJSON(r))
	}
	delivered := terminal.Duration(max(time.Since(r.Delivered), 0)) + " ago"
	if l.long {
		delivered = terminal.Exact(r.Delivered)
	}
	cells := []string{
		strconv.FormatInt(r.ID, 10), terminal.OrDash(printable.Text(r.Topic)), delivered, terminal.OrDash(printable.Text(r.ProviderRef)), settledText(r),
	}
	if l.long {
		cells = append(cells, terminal.OrDash(printable.Text(r.Key)), terminal.Exact(r.Expires))
	}
	t.Add(cells...)
	return nil
}

func settledText(r *outbox.KeptReceipt) string {
	if r.Settled == (retrysafe.Ref{}) {
		return "-"
	}
	return keyref.Text(r.Settled)
}

// receiptJSON is a receipt for scripts.
type receiptJSON struct {
	ID          int64        `json:"id"`
	Delivered   bool         `json:"delivered"` // always true: other messages have no receipt
	Topic       string       `json:"topic"`
	Key         string       `json:"key"`
	ProviderRef string       `json:"provider_ref,omitempty"`
	Settles     *keyref.JSON `json:"settles,omitempty"`
	DeliveredAt time.Time    `json:"delivered_at"`
	ExpiresAt   time.Time    `json:"expires_at"`
}

func newReceiptJSON(r *outbox.KeptReceipt) receiptJSON {
	j := receiptJSON{r.ID, true, r.Topic, r.Key, r.ProviderRef, nil, r.Delivered, r.Expires}
	if r.Settled != (retrysafe.Ref{}) {
		ref := keyref.NewJSON(r.Settled, false)
		j.Settles = &ref
	}
	return j
}

// receipt returns the receipt of a message, if there is one.
func (s *session) receipt(ctx context.Context, id int64) (r outbox.KeptReceipt, ok bool, err error) {
	list, err := s.Receipts(ctx, outbox.ReceiptQuery{After: id - 1, Limit: 1})
	switch {
	case errors.Is(err, errors.ErrUnsupported), err == nil && (len(list) == 0 || list[0].ID != id):
		return r, false, nil
	case err != nil:
		return r, false, s.StoreError(err)
	}
	return list[0], true, nil
}

// writeReceipt writes everything about a receipt.
func writeReceipt(env *command.Env, r *outbox.KeptReceipt, format *command.Choice, long bool) error {
	if format.Is("json") {
		return terminal.WriteJSON(env.Out, newReceiptJSON(r))
	}
	now := time.Now()
	d := terminal.NewDetails(env.Out)
	d.Add("message", "%d", r.ID)
	d.Add("topic", "%s", terminal.OrDash(printable.Text(r.Topic)))
	d.Add("key", "%s", terminal.OrDash(printable.Text(r.Key)))
	d.Add("delivered", "%s", terminal.Time(r.Delivered, now, long))
	d.Add("provider ref", "%s", terminal.OrDash(printable.Text(r.ProviderRef)))
	d.Add("settled", "%s", settledText(r))
	d.Add("expires", "%s (then the receipt is forgotten)", terminal.Time(r.Expires, now, long))
	_ = d.Flush() // an error of standard output is not reported
	terminal.WriteOptions(env.Out, "It was delivered, and its receiver has confirmed it.", nil)
	return nil
}
