package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/store/sealed"
)

func (p *program) configGenkeys() *cobra.Command {
	var add bool
	var use uint32
	cmd := &cobra.Command{
		Use:   "genkeys FILE",
		Short: "Make the keys that records are encrypted with, or rotate them",
		Long: `Makes a file with new keys, readable by you alone, for encryption.keys_file of a
gateway's configuration and for --keys-file. Keep a copy where your other secrets are:
what was encrypted with a key that is lost cannot be read by anybody.

A file that is there is never overwritten. To rotate: --add puts a new key into it, which
only reads at first; take the file to every node, then --use N makes it the one that
writes, and take the file to every node again. The old key stays until the last record
under it has expired. The index secret never changes: with another one no key would be
found, and everything would run again.`,
		Example: `  retrysafe config genkeys keys.json
  # rotate: first everybody has to be able to read what the new key writes
  retrysafe config genkeys keys.json --add
  # then everybody writes with it
  retrysafe config genkeys keys.json --use 2`,
		Args: exactly("FILE"),
	}
	cmd.Flags().BoolVar(&add, "add", false, "add a key to a file that is there")
	cmd.Flags().Uint32Var(&use, "use", 0, "let the key with this number be the one that writes")
	cmd.MarkFlagsMutuallyExclusive("add", "use")
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error {
		path := args[0]
		if !add && !given(cmd.Flags(), "use") {
			return p.newKeys(path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return misused("%v", err)
		}
		number, said := use, "writes now"
		if add {
			text, number, err = sealed.AddKey(text)
			said = "is there, and reads only: take the file to every node, then --use it"
		} else {
			text, err = sealed.UseKey(text, use)
		}
		if err != nil {
			return misused("%v", err)
		}
		if err := replace(path, text); err != nil {
			return failed(exitFailed, "%v", err)
		}
		fmt.Fprintf(p.stdout, "%s: key %d %s\n", visible(path), number, said)
		return nil
	})
	return cmd
}

// newKeys makes a file with keys, where there is none.
func (p *program) newKeys(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return failed(exitNo, "%s is there, and what was encrypted with its keys needs them", path).hinted("--add adds a key to it")
	}
	if err != nil {
		return failed(exitFailed, "%v", err)
	}
	if err := written(f, sealed.GenerateKeys()); err != nil {
		return failed(exitFailed, "%v", errors.Join(err, os.Remove(path)))
	}
	fmt.Fprintf(p.stdout, "%s: key 1 writes; keep a copy of the file where your other secrets are\n", visible(path))
	return nil
}

// replace puts text into the place of a file, whole or not at all: half a file of
// keys is none.
func replace(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // for this user alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it may be there no more
		}
	}()
	if info, err := os.Stat(path); err == nil {
		if err := f.Chmod(info.Mode().Perm()); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := written(f, text); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// written writes text and makes it durable.
func written(f *os.File, text []byte) error {
	_, err := f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
