package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (p *program) migrateStatus(stores *storeFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how far a store is migrated",
		Long: `Says which version the schema of a store has, which is the newest that this program
knows, what is pending, and how many records there are: exactly up to a hundred
thousand, and beyond that about. It changes nothing. The exit code is 1 if anything is
pending, or if the store is newer than this program.`,
		Example: `  retrysafe migrate status --store sqlite:retrysafe.db
  retrysafe migrate status --store postgres://app@db/app --format json`,
		Args: exactly(),
	}
	format := formats(cmd, "text", "json")
	cmd.RunE = runs(func(cmd *cobra.Command, _ []string) error {
		a, err := stores.address(p)
		if err != nil {
			return err
		}
		s, err := a.status(cmd.Context())
		if err != nil {
			return err
		}
		if format.value == "json" {
			if s.Pending == nil {
				s.Pending = []string{}
			}
			if err := writeJSON(p.stdout, s); err != nil {
				return err
			}
		} else {
			fmt.Fprint(p.stdout, s.text(a))
		}
		if s.Version < s.Newest || s.Refused {
			return quietly(exitNo)
		}
		return nil
	})
	return cmd
}

// text says how a store stands, in lines.
func (s *status) text(a *address) string {
	var b strings.Builder
	fmt.Fprintf(&b, "store    %s\nversion  %d\nnewest   %d\n", a, s.Version, s.Newest)
	switch {
	case s.Refused:
		b.WriteString("pending  none; the store is newer than this program: upgrade the program\n")
	case s.Version > s.Newest:
		b.WriteString("pending  none; the store is newer than this program, which may work on it all the same\n")
	case len(s.Pending) == 0:
		b.WriteString("pending  none\n")
	default:
		fmt.Fprintf(&b, "pending  %s; make them with: retrysafe migrate up%s\n", strings.Join(s.Pending, ", "), a.again)
	}
	if s.Version > 0 {
		about := ""
		if s.Estimated {
			about = "about "
		}
		fmt.Fprintf(&b, "keys     %s%s\n", about, grouped(s.Keys))
	}
	return b.String()
}
