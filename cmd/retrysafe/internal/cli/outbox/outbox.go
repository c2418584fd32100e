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
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// boxFlags are the flags that all commands of the group have.
type boxFlags struct {
	*stores.Flags
	window time.Duration
}

// Command returns the group.
func Command(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "outbox",
		Short: "See messages that could not be delivered, and decide about them",
		Long: `Messages of the outbox commit together with answers and are delivered afterwards. One
that cannot be delivered becomes a dead letter, and stays one until an operator decides:
nothing else removes it.

` + stores.Help,
		Example: `  # dead letters
  retrysafe outbox list --store postgres://app@db/app
  # one of them
  retrysafe outbox show --store postgres://app@db/app 17`,
	})
	f := &boxFlags{Flags: stores.AddFlags(cmd)}
	cmd.PersistentFlags().DurationVar(&f.window, "window", 24*time.Hour, "how long receivers remember a key; negative: they need none")
	cmd.AddCommand(depthCommand(env, f), listCommand(env, f), showCommand(env, f), redriveCommand(env, f), skipCommand(env, f), dropCommand(env, f))
	return cmd
}

// A session is an open store and the messages of its outbox.
type session struct {
	*stores.Session
	messages *operator.DeadLetters
}

func (f *boxFlags) open(ctx context.Context, env *command.Env) (*session, error) {
	s, err := f.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	if s.Opened.Outbox == nil {
		s.Close(ctx)
		return nil, exit.Usagef("a store of the kind %s has no outbox", s.Opened.Kind).Hintf("messages commit together with answers in a sqlite: or postgres: store")
	}
	return &session{s, s.DeadLetters(s.Opened.Outbox, f.window)}, nil
}

// find returns a message that is a dead letter, or one that fails and is still tried.
func (s *session) find(ctx context.Context, id int64) (m outbox.DeadLetter, dead bool, err error) {
	m, err = s.messages.Show(ctx, id)
	if err == nil {
		return m, true, nil
	}
	if !errors.Is(err, retrysafe.ErrNotFound) {
		return m, true, s.StoreError(err)
	}
	failing, err := s.messages.Failing(ctx, id-1, 1)
	switch {
	case errors.Is(err, errors.ErrUnsupported), err == nil && (len(failing) == 0 || failing[0].ID != id):
		return m, false, exit.Errorf(exit.No, "message %d is neither dead nor failing: it was delivered or dropped, or never existed", id).
			Hintf("see what is there: retrysafe outbox list%s", s.Repeat)
	case err != nil:
		return m, false, s.StoreError(err)
	}
	return failing[0], false, nil
}

// parseID returns the ID of a message that an argument gives.
func parseID(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id <= 0 {
		return 0, exit.Usagef("%q is not the ID of a message", arg).Hintf("retrysafe outbox list shows them")
	}
	return id, nil
}
