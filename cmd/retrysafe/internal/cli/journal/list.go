package journal

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func listCommand(env *command.Env, f *flags) *cobra.Command {
	var all, long bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the unfinished operations of a journal",
		Long: `Lists the operations of a journal that have no outcome yet, the oldest first; with --all
also those that were answered or abandoned. An operation that has been unfinished for longer
than the API remembers keys must not be sent again: look it up in the API's own lists, then
abandon it.`,
		Example: `  retrysafe journal list --journal payments.journal
  # everything that is kept, for a script
  retrysafe journal list --journal payments.journal --all --format json`,
		Args: command.Args(),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also operations that have an outcome")
	cmd.Flags().BoolVar(&long, "long", false, "exact times, and keys")
	format := command.NewFormat(cmd, "table", "json", "csv")
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		j, err := f.open(cmd.Context(), env, true)
		if err != nil {
			return err
		}
		defer j.Close()
		ops, err := j.Operations(cmd.Context())
		if err != nil {
			return exit.Errorf(exit.Store, "%v", err)
		}
		columns := []string{"ID", "STATE", "BEGUN", "REQUEST", "OUTCOME"}
		if long {
			columns = append(columns, "ENDED", "KEY EXPIRES", "KEY")
		}
		t := terminal.NewTable(env.Out, format.Is("csv"), columns...)
		found, now := 0, time.Now()
		for i := range ops {
			op := &ops[i]
			if !all && !op.Unfinished() {
				continue
			}
			found++
			if format.Is("json") {
				if err := terminal.WriteJSON(env.Out, newOperationJSON(op)); err != nil {
					return err
				}
				continue
			}
			cells := []string{
				name(op), state(op), terminal.Time(op.Begun, now, long), terminal.Clip(printable.Text(op.Method+" "+op.URL), 80), terminal.OrDash(outcome(op)),
			}
			if long {
				cells = append(cells, terminal.OrDash(exact(op.Ended)), terminal.OrDash(exact(op.Expires)), printable.Text(op.Key))
			}
			t.Add(cells...)
		}
		if found == 0 {
			fmt.Fprintln(env.Err, "none")
		}
		return t.Flush()
	})
	return cmd
}

func exact(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return terminal.Exact(t)
}

func outcome(op *client.Operation) string {
	switch {
	case op.Abandoned != "":
		return terminal.Clip(printable.Text(op.Abandoned), 60)
	case op.Answer != nil:
		return strconv.Itoa(op.Answer.Status)
	default:
		return ""
	}
}

// operationJSON is an operation for scripts, without bodies.
type operationJSON struct {
	ID        string    `json:"id"`
	State     string    `json:"state"`
	Key       string    `json:"key"`
	Method    string    `json:"method"`
	URL       string    `json:"url"`
	BodySize  int       `json:"body_size"`
	Begun     time.Time `json:"begun_at"`
	Ended     time.Time `json:"ended_at,omitzero"`
	Expires   time.Time `json:"key_expires_at,omitzero"`
	Status    int       `json:"status,omitempty"`
	Abandoned string    `json:"abandoned,omitempty"`
}

func newOperationJSON(op *client.Operation) operationJSON {
	j := operationJSON{
		ID: op.ID, State: state(op), Key: op.Key, Method: op.Method, URL: op.URL, BodySize: len(op.Body),
		Begun: op.Begun, Ended: op.Ended, Expires: op.Expires, Abandoned: op.Abandoned,
	}
	if op.Answer != nil {
		j.Status = op.Answer.Status
	}
	return j
}
