package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func depthCommand(env *command.Env, f *boxFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "depth",
		Short: "Show how many messages wait, fail and are dead, and for how long",
		Long: `Shows how many messages wait to be delivered, how many of them have failed and will be
sent again, how many are dead letters, and the age of the oldest that is due and of the
oldest dead letter. If messages wait for long and none fails, check that a worker runs.`,
		Example: `  retrysafe outbox depth
  # for a script
  retrysafe outbox depth -o json`,
		Args: command.Args(),
	}
	format := command.NewFormat(cmd, "text", "json")
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		s, err := f.open(ctx, env)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		d, err := s.depth(ctx)
		if err != nil {
			return err
		}
		if format.Is("json") {
			return terminal.WriteJSON(env.Out, d)
		}
		t := terminal.NewDetails(env.Out)
		t.Add("waiting", "%s%s", terminal.Number(d.Waiting), oldestText(", the oldest that is due for ", d.Oldest))
		t.Add("ready", "%s, not tried yet or being sent", terminal.Number(d.Ready))
		t.Add("failing", "%s, to be sent again", terminal.Number(d.Failing))
		t.Add("dead", "%s%s", terminal.Number(d.Dead), oldestText(", the oldest for ", d.OldestDead))
		if err := t.Flush(); err != nil {
			return err
		}
		if d.Dead > 0 {
			fmt.Fprintf(env.Out, "\nSee the dead letters: retrysafe outbox list%s\n", s.Again())
		}
		return nil
	})
	return cmd
}

// depthJSON is the depth of an outbox for scripts.
type depthJSON struct {
	Waiting    int     `json:"waiting"`
	Ready      int     `json:"ready"`
	Failing    int     `json:"failing"`
	Dead       int     `json:"dead"`
	Oldest     float64 `json:"oldest_seconds"`
	OldestDead float64 `json:"oldest_dead_seconds"`
}

// depth counts the messages.
func (s *session) depth(ctx context.Context) (d depthJSON, err error) {
	got, err := s.Depth(ctx)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return d, exit.Errorf(exit.No, "this store cannot count its messages")
	case err != nil:
		return d, s.StoreError(err)
	}
	d = depthJSON{Waiting: got.Waiting, Ready: got.Waiting, Dead: got.Dead, Oldest: got.Oldest, OldestDead: got.OldestDead}
	if got.Failing >= 0 { // otherwise the store cannot tell
		d.Failing, d.Ready = got.Failing, max(got.Waiting-got.Failing, 0)
	}
	return d, nil
}

// oldestText returns how old the oldest message is, if there is one.
func oldestText(what string, seconds float64) string {
	if seconds <= 0 {
		return ""
	}
	return what + terminal.Duration(time.Duration(seconds*float64(time.Second)))
}
