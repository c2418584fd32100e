// Package action is what the commands have in common with which an operator changes a
// record or a message: the flags for its author and its reason, a confirmation, an ID
// that makes the command safe to repeat, and the report of how it ended.
package action

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
)

// Help is for the help texts of these commands.
const Help = `The audit records the reason (--why) and the author (--by, by default you on this
machine). The change is made only if the record is still at the revision that you saw:
--revision, or the one that is shown before you confirm. The same command with the same
--revision may be repeated at any time: it acts once, and reports again how it ended.`

// Flags are the author of an action, its reason, and the revision that it is based on.
type Flags struct {
	By, Why, ID string
	Revision    int64
	// ByToken says that a gateway knows the author by a token.
	ByToken bool
	// Ask says that the action must be confirmed, Yes that it was on the command line.
	Ask, Yes bool
	Format   *command.Choice
}

// AddFlags adds the flags to cmd. Ask is for actions that may do harm: they are
// confirmed first.
func AddFlags(cmd *cobra.Command, ask bool) *Flags {
	f := &Flags{Ask: ask, Format: command.NewFormat(cmd, "text", "json")}
	f.AddAuthor(cmd)
	cmd.Flags().Int64Var(&f.Revision, "revision", 0, "revision that you saw (default the current one)")
	usage := "do not ask"
	if !ask {
		usage = "accepted and ignored: this command does not ask"
	}
	cmd.Flags().BoolVar(&f.Yes, "yes", false, usage)
	return f
}

// AddAuthor adds only the flags that the audit records.
func (f *Flags) AddAuthor(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.By, "by", "", "your name (default $USER@host)")
	cmd.Flags().StringVar(&f.Why, "why", "", "reason, for readers of the audit (required)")
	cmd.Flags().StringVar(&f.ID, "id", "", "ID of the action, to repeat one that was interrupted")
}

// Complete fills in the author, and reports what is missing.
func (f *Flags) Complete(env *command.Env) error {
	if strings.TrimSpace(f.Why) == "" {
		return exit.Usagef("--why is missing: the reason, for readers of the audit").Hintf(`for example --why "ch_17 is in the provider's dashboard"`)
	}
	if f.ByToken && f.By != "" {
		return exit.Usagef("with --admin the author is the name of the token").Hintf("leave out --by")
	}
	if f.By == "" && !f.ByToken {
		user := cmp.Or(env.Getenv("USER"), env.Getenv("LOGNAME"))
		if user == "" {
			return exit.Usagef("the author is not known: there is no $USER").Hintf("use --by NAME")
		}
		f.By = user
		if host, err := os.Hostname(); err == nil {
			f.By += "@" + host
		}
	}
	return nil
}

// Adopt takes over the author that a gateway knows by a token. A token that may not act is
// refused here, before a person is asked to confirm anything.
func (f *Flags) Adopt(p adminwire.Person) error {
	if p.Role == "read" {
		return exit.Errorf(exit.No, "the token %q has the role read, which shows records and changes none", p.Name).
			Hintf("use a token with the role act, from admin.tokens of the gateway's configuration")
	}
	f.By = cmp.Or(p.Name, f.By)
	return nil
}

// WriteOptions writes what the state of a thing means, and the commands that a person may
// run next: none, if the token may not act.
func WriteOptions(w io.Writer, p adminwire.Person, means string, options []terminal.Option) {
	if p.Role == "read" && len(options) > 0 {
		means += " Your token has the role read: a person with the role act may decide about it."
		options = nil
	}
	terminal.WriteOptions(w, means, options)
}

// ID returns the ID of an action that the command line gives none: a hash of everything
// that the action consists of. Repeated word for word it is the same action, because a
// revision never comes back.
func ID(parts ...string) string {
	h := sha256.New()
	for _, part := range append([]string{"retrysafe command 1"}, parts...) {
		h.Write(binary.AppendUvarint(nil, uint64(len(part)))) // with lengths, no two lists have the same bytes
		h.Write([]byte(part))
	}
	return base32.StdEncoding.EncodeToString(h.Sum(nil))[:26]
}
