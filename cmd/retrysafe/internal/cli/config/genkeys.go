package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/store/sealed"
)

func genkeysCommand(env *command.Env) *cobra.Command {
	var add bool
	var use uint32
	cmd := &cobra.Command{
		Use:   "genkeys FILE",
		Short: "Create the keys that records are encrypted with, or rotate them",
		Long: `Creates a file with new keys, readable by you alone, for encryption.keys_file of a
gateway's configuration and for --keys-file. Keep a copy where your other secrets are:
records that were encrypted with a lost key cannot be read any more.

A file that exists is never overwritten. To rotate, use --add: it adds a new key, which
only decrypts at first. Copy the file to every node. Then --use N makes it the key that
encrypts; copy the file to every node again. The old key stays until the last record
that was encrypted with it has expired. The index secret never changes: with another one
no key would be found, and everything would run again.`,
		Example: `  retrysafe config genkeys keys.json
  # rotate: first every node must be able to decrypt with the new key
  retrysafe config genkeys keys.json --add
  # then every node encrypts with it
  retrysafe config genkeys keys.json --use 2`,
		Args: command.Args("FILE"),
	}
	cmd.Flags().BoolVar(&add, "add", false, "add a key to a file that exists")
	cmd.Flags().Uint32Var(&use, "use", 0, "make the key with this number the one that encrypts")
	cmd.MarkFlagsMutuallyExclusive("add", "use")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		path := args[0]
		if !add && !cmd.Flags().Changed("use") {
			return createKeys(env, path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return exit.Usagef("%v", err)
		}
		number, result := use, "encrypts now"
		if add {
			text, number, err = sealed.AddKey(text)
			result = "was added and only decrypts: copy the file to every node, then --use it"
		} else {
			text, err = sealed.UseKey(text, use)
		}
		if err != nil {
			return exit.Usagef("%v", err)
		}
		if err := replace(path, text); err != nil {
			return exit.Errorf(exit.Failed, "%v", err)
		}
		fmt.Fprintf(env.Out, "%s: key %d %s\n", printable.Text(path), number, result)
		return nil
	})
	return cmd
}

// createKeys creates a file with keys.
func createKeys(env *command.Env, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return exit.Errorf(exit.No, "%s exists, and records may be encrypted with its keys", path).Hintf("--add adds a key to it")
	}
	if err != nil {
		return exit.Errorf(exit.Failed, "%v", err)
	}
	if err := write(f, sealed.GenerateKeys()); err != nil {
		return exit.Errorf(exit.Failed, "%v", errors.Join(err, os.Remove(path)))
	}
	fmt.Fprintf(env.Out, "%s: key 1 encrypts; keep a copy of the file where your other secrets are\n", printable.Text(path))
	return nil
}

// replace replaces the content of a file atomically: with half of its keys it would be
// of no use.
func replace(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // readable by this user only
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // after a rename there is none
		}
	}()
	if info, err := os.Stat(path); err == nil {
		if err := f.Chmod(info.Mode().Perm()); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := write(f, text); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// write writes text, makes it durable and closes the file.
func write(f *os.File, text []byte) error {
	_, err := f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
