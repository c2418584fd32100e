// Package stores finds and opens the store that a command works on: by --store, by the
// configuration of a gateway, or by the environment. Looking at a store never changes
// it and never creates one.
package stores

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/configfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// Variables of the environment.
const (
	// URLVariable has the URL of the store if the command line does not name one.
	URLVariable = "RETRYSAFE_STORE"
	// KeysVariable has the file with the encryption keys.
	KeysVariable = "RETRYSAFE_KEYS_FILE"
)

// Help is for the help texts of commands that need a store.
const Help = `The store is given by --store, by the configuration of a gateway (--config), or by
$` + URLVariable + `: sqlite:FILE, postgres://user:password@host/database or
mysql://user:password@host/database, redis://user:password@host or
dynamodb://REGION/TABLE. If its records are encrypted, --keys-file (or the configuration,
or $` + KeysVariable + `) names the file with the keys.`

// Flags are the flags that name a store.
type Flags struct {
	URL, Config, KeysFile string
	// AdminURL and AdminTokenFile name the admin API of a gateway instead.
	AdminURL, AdminTokenFile string
}

// AddFlags adds the flags to cmd and to all commands below it.
func AddFlags(cmd *cobra.Command) *Flags {
	f := new(Flags)
	f.Add(cmd.PersistentFlags())
	return f
}

// Add adds the flags to a set.
func (f *Flags) Add(to *pflag.FlagSet) {
	to.StringVar(&f.URL, "store", "", "URL of the store")
	to.StringVar(&f.Config, "config", "", "configuration `FILE` of a gateway, which names the store")
	to.StringVar(&f.KeysFile, "keys-file", "", "`FILE` with the keys that records are encrypted with")
}

// A Location is where a store is, and which keys its records are encrypted with.
type Location struct {
	URL      string
	Address  storeurl.Address // the URL, parsed
	KeysFile string
	// Repeat are the flags, each after a space, with which another command finds the
	// same store. They contain no password.
	Repeat string
}

// Parse returns the location of the store with a URL.
func Parse(url string) (*Location, error) {
	at, err := storeurl.Parse(url)
	if err != nil {
		return nil, exit.Usagef("%v", err)
	}
	return &Location{URL: url, Address: at}, nil
}

// Location returns the location that the flags name. The command line counts more than
// a configuration, which counts more than the environment.
func (f *Flags) Location(env *command.Env) (*Location, error) {
	url, keysFile, repeat := f.URL, f.KeysFile, ""
	if f.URL != "" {
		repeat = repeatURL(f.URL)
	}
	if f.Config != "" {
		c, err := configfile.LoadStore(env, f.Config)
		if err != nil {
			return nil, err
		}
		url, keysFile = cmp.Or(url, c.Store), cmp.Or(keysFile, c.Encryption.KeysFile)
		repeat += " --config " + terminal.ShellWord(f.Config)
	}
	if f.KeysFile != "" {
		repeat += " --keys-file " + terminal.ShellWord(f.KeysFile)
	}
	url, keysFile = cmp.Or(url, env.Getenv(URLVariable)), cmp.Or(keysFile, env.Getenv(KeysVariable))
	if url == "" {
		return nil, exit.Usagef("no store is named").
			Hintf("use --store sqlite:FILE or --store postgres://user:password@host/database, --config FILE, or $%s", URLVariable)
	}
	l, err := Parse(url)
	if err != nil {
		return nil, err
	}
	l.KeysFile, l.Repeat = keysFile, repeat
	return l, nil
}

// ParseArgument returns the location of the store with a URL that the command line has as
// an argument.
func ParseArgument(url string) (*Location, error) {
	l, err := Parse(url)
	if err == nil {
		l.Repeat = repeatURL(url)
	}
	return l, err
}

// repeatURL returns the flag, after a space, with which another command finds the store
// with a URL.
func repeatURL(url string) string {
	if storeurl.Redact(url) != url {
		return ` --store "$` + URLVariable + `"`
	}
	return " --store " + terminal.ShellWord(url)
}

// String returns the URL without its password.
func (l *Location) String() string { return printable.Text(storeurl.Redact(l.URL)) }

// Absolute is String with the whole path of a SQLite file: which file it is depends on the
// working directory.
func (l *Location) Absolute() string {
	if l.Address.Kind == storeurl.SQLite {
		if path, err := filepath.Abs(l.Address.Path); err == nil {
			return printable.Text("sqlite:" + path)
		}
	}
	return l.String()
}

// Missing reports whether the location is a SQLite file that does not exist.
func (l *Location) Missing() bool {
	if l.Address.Kind != storeurl.SQLite {
		return false
	}
	_, err := os.Stat(l.Address.Path)
	return errors.Is(err, fs.ErrNotExist)
}

// StoreError returns an error of the store as one of the command. Nil stays nil, and an
// [*exit.Error] stays what it is.
func (l *Location) StoreError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*exit.Error](err); ok {
		return e
	}
	e := exit.Errorf(exit.Store, "the store %s: %v", l, err)
	if hint := cmp.Or(l.fileHint(err), parameterHint(err)); hint != "" {
		return e.Hintf("%s", hint)
	}
	return e
}

// parameterHint returns what to do about a parameter of a URL that neither this program nor
// PostgreSQL or PgBouncer knows, or nothing.
func parameterHint(err error) string {
	text := err.Error()
	if !strings.Contains(text, "unrecognized configuration parameter") && !strings.Contains(text, "unsupported startup parameter") {
		return ""
	}
	return "correct the parameter in the URL: besides those of PostgreSQL there are schema, pgbouncer and anyserver"
}
