package keys

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

// A keyArg is the key that a command line names: SCOPE and KEY, KEY and --scope, or KEY
// alone, which may be the hash that logs show.
type keyArg struct{ scope string }

// keyArgHelp is for the help texts of these commands.
const keyArgHelp = `Without SCOPE the key is searched for in all scopes, which reads the whole store. KEY
may be the hash that logs show.`

func addKeyArg(cmd *cobra.Command) *keyArg {
	k := new(keyArg)
	cmd.Flags().StringVar(&k.scope, "scope", "", "scope of KEY, if it is not an argument")
	return k
}

// oneKey is for commands that take one key.
func oneKey(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("KEY is missing")
	case 1, 2:
		return nil
	default:
		return fmt.Errorf("%q is one argument too many", args[2])
	}
}

// hashed is what a hash of a key looks like.
var hashed = regexp.MustCompile(`^[0-9a-f]{16}$`)

// find returns the key that the arguments name.
func (k *keyArg) find(ctx context.Context, env *command.Env, s *session, args []string) (retrysafe.Ref, error) {
	if len(args) == 2 {
		if k.scope != "" {
			return retrysafe.Ref{}, exit.Usagef("the scope is there twice: as an argument and as --scope")
		}
		return keyref.Parse(args), nil
	}
	ref := retrysafe.Ref{Scope: printable.ParseName(k.scope), Key: printable.ParseName(args[0])}
	if ref.Scope != "" {
		_, err := s.Show(ctx, ref)
		if !errors.Is(err, retrysafe.ErrNotFound) || !hashed.MatchString(ref.Key) {
			return ref, nil // an error is that of the command
		}
	}
	found, err := search(ctx, env, s, ref)
	switch {
	case err != nil:
		return ref, s.StoreError(err)
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && ref.Scope != "":
		return ref, cannotLoad(s, ref, retrysafe.ErrNotFound)
	case len(found) == 0:
		return ref, exit.Errorf(exit.No, "there is no key %s in any scope: it was forgotten, or never existed", printable.Name(ref.Key)).
			Hintf("see what is there: retrysafe keys list%s", s.Again())
	}
	var scopes []string
	for _, f := range found {
		scopes = append(scopes, printable.Name(f.Scope))
	}
	slices.Sort(scopes)
	more := ""
	if len(scopes) > 10 {
		scopes, more = scopes[:10], ", …"
	}
	return ref, exit.Usagef("the key %s is in %d scopes: %s%s", printable.Name(ref.Key), len(found), strings.Join(scopes, ", "), more).
		Hintf("name one of them: --scope %s", terminal.ShellWord(scopes[0]))
}

// search returns all records with this key, or whose key has it as its hash, in one scope
// or in all.
func search(ctx context.Context, env *command.Env, s *session, wanted retrysafe.Ref) (found []retrysafe.Ref, err error) {
	progress, read := env.Progress(), 0
	defer progress.End()
	isHash := hashed.MatchString(wanted.Key)
	f := operator.Filter{Scope: wanted.Scope, Limit: 2000}
	for more := true; more; {
		page, err := s.List(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range page.Records {
			if r := &page.Records[i]; r.Key == wanted.Key || isHash && retrysafe.HashKey(r.Key) == wanted.Key {
				found = append(found, r.Ref)
			}
		}
		read += len(page.Records)
		progress.Show(int64(read), "keys read")
		f.After, more = page.Next, page.More
	}
	return found, nil
}
