// Package outbox is the command group "retrysafe outbox": it shows messages that could
// not be delivered and lets an operator decide about them. In its files the name outbox
// refers to the library's package.
package outbox

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// boxFlags are the flags that all commands of the group have.
type boxFlags struct {
	*stores.Flags
	window      time.Duration
	windowGiven func() bool
}

// Command returns the group.
func Command(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "outbox",
		Short: "See messages that could not be delivered, and decide about them",
		Long: `Messages of the outbox commit together with answers and are delivered afterwards. One
that cannot be delivered becomes a dead letter, and stays one until an operator decides:
nothing else removes it.

` + stores.Help + `

` + stores.AdminHelp,
		Example: `  # dead letters
  retrysafe outbox list --store postgres://app@db/app
  # one of them
  retrysafe outbox show --store postgres://app@db/app 17`,
	})
	f := &boxFlags{Flags: stores.AddFlags(cmd)}
	f.AddAdmin(cmd.PersistentFlags())
	cmd.PersistentFlags().DurationVar(&f.window, "window", 24*time.Hour, "how long receivers remember a key; negative: they need none")
	f.windowGiven = func() bool { return cmd.PersistentFlags().Changed("window") }
	cmd.AddCommand(depthCommand(env, f), listCommand(env, f), receiptsCommand(env, f), showCommand(env, f), redriveCommand(env, f), skipCommand(env, f), dropCommand(env, f))
	return cmd
}

// A session is the outbox that the commands work on: that of a store, or of a gateway by
// its admin API.
type session struct {
	place
	messages
}

// A place is where the messages are.
type place interface {
	// Again returns the flags with which another command finds the same place.
	Again() string
	// Person returns the author of all actions and its role, or nothing if the command line
	// names the author.
	Person() adminwire.Person
	// StoreError returns an error of the place as one of the command.
	StoreError(err error) error
	// Receipts returns receipts of delivered messages. If there are none to be kept, the
	// error is [errors.ErrUnsupported].
	Receipts(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error)
	Close(ctx context.Context)
}

// messages are those that could not be delivered.
type messages interface {
	// Messages returns dead letters with ids above after, or messages that fail.
	Messages(ctx context.Context, failing bool, after int64, limit int) ([]adminwire.MessageView, error)
	// Message returns a message that is a dead letter, or one that fails. If it is neither,
	// the error is [retrysafe.ErrNotFound].
	Message(ctx context.Context, id int64) (m adminwire.MessageView, dead bool, err error)
	// Payload returns the message with its payload. Why is for the audit of a gateway.
	Payload(ctx context.Context, m adminwire.MessageView, why string) (adminwire.MessageView, error)
	ActOnMessage(ctx context.Context, verb string, a operator.DeadLetterAction) (operator.Entry, error)
	Depth(ctx context.Context) (adminwire.Depth, error)
}

func (f *boxFlags) open(ctx context.Context, env *command.Env) (*session, error) {
	if f.AdminURL != "" {
		return f.openAdmin(ctx, env)
	}
	s, err := f.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	if s.Opened.Outbox == nil {
		s.Close(ctx)
		return nil, noOutbox(s.Opened.Kind)
	}
	box := s.Box(f.window)
	return &session{box, box}, nil
}

func (f *boxFlags) openAdmin(ctx context.Context, env *command.Env) (*session, error) {
	if f.windowGiven() {
		return nil, exit.Usagef("with --admin the gateway says how long receivers remember a key").Hintf("leave out --window")
	}
	a, err := f.OpenAdmin(ctx, env)
	if err != nil {
		return nil, err
	}
	facts, err := a.Facts(ctx)
	if err != nil {
		return nil, a.StoreError(err)
	}
	if !facts.Store.Outbox {
		a.Close(ctx)
		return nil, noOutbox(facts.Store.Kind)
	}
	return &session{a, a}, nil
}

func noOutbox(kind string) error {
	return exit.Usagef("a store of the kind %s has no outbox", printable.Text(kind)).Hintf("messages commit together with answers in a sqlite: or postgres: store")
}

// find returns a message that is a dead letter, or one that fails and is still tried.
func (s *session) find(ctx context.Context, id int64) (m adminwire.MessageView, dead bool, err error) {
	m, dead, err = s.Message(ctx, id)
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		return m, false, exit.Errorf(exit.No, "message %d is neither dead nor failing: it was delivered without a receipt, dropped, or never existed", id).
			Hintf("see what is there: retrysafe outbox list%s", s.Again())
	case err != nil:
		return m, dead, s.StoreError(err)
	}
	return m, dead, nil
}

// parseID returns the ID of a message that an argument gives.
func parseID(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id <= 0 {
		return 0, exit.Usagef("%q is not the ID of a message", arg).Hintf("retrysafe outbox list shows them")
	}
	return id, nil
}
