package migrate

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func statusCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations a store has",
		Long: `Shows the version of a store's schema, the newest that this program knows, the
migrations that are pending, and the number of records: exact up to a hundred thousand,
and estimated beyond that. It changes nothing. The exit code is 1 if a migration is
pending, or if the store is too new for this program.`,
		Example: `  retrysafe migrate status --store sqlite:retrysafe.db
  retrysafe migrate status --store postgres://app@db/app --format json`,
		Args: command.Args(),
	}
	format := command.NewFormat(cmd, "text", "json")
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		l, err := target.Location(env)
		if err != nil {
			return err
		}
		s, err := l.Status(cmd.Context())
		if err != nil {
			return err
		}
		if format.Is("json") {
			if s.Pending == nil {
				s.Pending = []string{}
			}
			if err := terminal.WriteJSON(env.Out, s); err != nil {
				return err
			}
		} else {
			fmt.Fprint(env.Out, statusText(&s, l))
		}
		if s.Version < s.Newest || s.Refused {
			return exit.Silent(exit.No)
		}
		return nil
	})
	return cmd
}

// statusText returns a status for people.
func statusText(s *stores.Status, l *stores.Location) string {
	var b strings.Builder
	fmt.Fprintf(&b, "store    %s\nversion  %d\nnewest   %d\n", l, s.Version, s.Newest)
	switch {
	case s.Refused:
		b.WriteString("pending  none; the store is newer than this program: upgrade the program\n")
	case s.Version > s.Newest:
		b.WriteString("pending  none; the store is newer than this program, which may work on it all the same\n")
	case len(s.Pending) == 0:
		b.WriteString("pending  none\n")
	default:
		fmt.Fprintf(&b, "pending  %s; apply them with: retrysafe migrate up%s\n", strings.Join(s.Pending, ", "), l.Repeat)
	}
	if s.Version > 0 {
		about := ""
		if s.Estimated {
			about = "about "
		}
		fmt.Fprintf(&b, "keys     %s%s\n", about, terminal.Number(s.Keys))
	}
	return b.String()
}
