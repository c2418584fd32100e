package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

const (
	storeVariable = "RETRYSAFE_STORE"
	keysVariable  = "RETRYSAFE_KEYS_FILE"
)

// storeHelp is for the commands that need a store.
const storeHelp = `The store is named by --store, or by the configuration of a gateway (--config), or
by $` + storeVariable + `: sqlite:FILE or postgres://user:password@host/database. If its
records are encrypted, --keys-file (or the configuration, or $` + keysVariable + `)
has the keys.`

// storeFlags say which store a command works on.
type storeFlags struct{ store, config, keysFile string }

// needsStore adds the flags to all commands below cmd.
func needsStore(cmd *cobra.Command) *storeFlags {
	f := new(storeFlags)
	f.add(cmd.PersistentFlags())
	return f
}

func (f *storeFlags) add(to *pflag.FlagSet) {
	to.StringVar(&f.store, "store", "", "URL of the store")
	to.StringVar(&f.config, "config", "", "configuration `FILE` of a gateway, which names the store")
	to.StringVar(&f.keysFile, "keys-file", "", "`FILE` with the keys that records are encrypted with")
}

// An address is where a store is, and how one says so again.
type address struct {
	url      string
	at       storeurl.Address // the URL taken apart
	keysFile string
	// again are the flags with which another command finds the same store. They
	// tell no password.
	again string
}

func (a *address) String() string { return visible(storeurl.Redact(a.url)) }

// address finds out which store is meant. What is said on the command line counts
// more than the environment.
func (f *storeFlags) address(p *program) (*address, error) {
	a := &address{url: f.store, keysFile: f.keysFile}
	if f.store != "" {
		a.again = " --store " + word(f.store)
		if redacted := storeurl.Redact(f.store); redacted != f.store {
			a.again = ` --store "$` + storeVariable + `"`
		}
	}
	if f.config != "" {
		c, err := p.loadConfig(f.config)
		if err != nil {
			return nil, err
		}
		if a.url == "" {
			a.url = c.Store
		}
		a.keysFile = cmp.Or(a.keysFile, c.Encryption.KeysFile)
		a.again += " --config " + word(f.config)
	}
	if a.url == "" {
		a.url = p.getenv(storeVariable)
	}
	if f.keysFile != "" {
		a.again += " --keys-file " + word(f.keysFile)
	}
	a.keysFile = cmp.Or(a.keysFile, p.getenv(keysVariable))
	if a.url == "" {
		return nil, misused("no store is named").hinted("use --store sqlite:FILE or --store postgres://user:password@host/database, --config FILE, or $%s", storeVariable)
	}
	var err error
	if a.at, err = storeurl.Parse(a.url); err != nil {
		return nil, misused("%v", err)
	}
	return a, nil
}

// status says how far a store was migrated.
type status struct {
	Version   int      `json:"version"`
	Newest    int      `json:"newest"`
	Refused   bool     `json:"refused"`
	Pending   []string `json:"pending"`
	Keys      int64    `json:"keys"`
	Estimated bool     `json:"estimated"`
}

// answers is how long a store may take to answer at first.
const answers = 10 * time.Second

// status asks the store. It changes nothing.
func (a *address) status(ctx context.Context) (status, error) {
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	switch a.at.Kind {
	case storeurl.SQLite:
		s, err := sqlitestore.ReadStatus(ctx, a.at.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return status{}, failed(exitStore, "there is no store at %s: no such file", a).hinted("check the path, or make it with: retrysafe migrate up%s", a.again)
		}
		return status{s.Version, s.Newest, s.Refused, s.Pending, s.Keys, s.Estimated}, a.trouble(err)
	case storeurl.Postgres:
		s, err := pgstore.ReadStatus(ctx, a.at.URL, &pgstore.Options{Schema: a.at.Schema, PgBouncer: a.at.PgBouncer})
		return status{s.Version, s.Newest, s.Refused, s.Pending, s.Keys, s.Estimated}, a.trouble(err)
	default:
		return status{}, misused("a memory: store is gone with its process, so there is nothing to see of it from here").hinted("name a sqlite: or postgres: store")
	}
}

// trouble says that the store did not do what it should.
func (a *address) trouble(err error) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return failed(exitStore, "the store %s: %v", a, err)
}

// A desk is an open store and what a person may do there.
type desk struct {
	*operator.Desk
	*address
	opened *storeurl.Opened
	// store is what the engines have: sealed, if there are keys.
	store retrysafe.Store
}

// open opens a store that is there and has this program's schema. Looking at a
// store must not change it.
func (f *storeFlags) open(ctx context.Context, p *program) (*desk, error) {
	a, err := f.address(p)
	if err != nil {
		return nil, err
	}
	s, err := a.status(ctx)
	switch {
	case err != nil:
		return nil, err
	case s.Version == 0:
		return nil, failed(exitStore, "the store %s has no tables of retrysafe", a).hinted("make them with: retrysafe migrate up%s", a.again)
	case s.Version < s.Newest:
		return nil, failed(exitStore, "the store %s has schema version %d, and this program needs %d", a, s.Version, s.Newest).hinted("migrate it with: retrysafe migrate up%s", a.again)
	case s.Refused:
		return nil, failed(exitStore, "the store %s has schema version %d, and this program knows only %d", a, s.Version, s.Newest).hinted("upgrade the program")
	}
	return a.open(ctx, p)
}

// open opens the store and looks whether it is sealed as it should be.
func (a *address) open(ctx context.Context, p *program) (_ *desk, err error) {
	start, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	opened, err := storeurl.Open(start, a.url, &storeurl.Options{SkipMigrations: true})
	if err != nil {
		return nil, a.trouble(err)
	}
	defer func() {
		if err != nil {
			_ = opened.Close() // nothing was done to it
		}
	}()
	d := &desk{address: a, opened: opened}
	if d.store, err = a.sealing(start, p, opened.Store); err != nil {
		return nil, err
	}
	if d.Desk, err = operator.New(d.store, nil); err != nil {
		return nil, err
	}
	return d, nil
}

// sealing returns the store as the engines see it. Whoever wrote to an encrypted
// store without its keys would leave plain text there that no engine can read, so
// that is refused.
func (a *address) sealing(ctx context.Context, p *program, below retrysafe.Store) (retrysafe.Store, error) {
	if a.keysFile == "" {
		return below, a.mustBePlain(ctx, below)
	}
	ring, err := sealed.LoadKeyring(a.keysFile)
	if err != nil {
		return nil, misused("%v", err).hinted("a new one is made by: retrysafe config genkeys FILE")
	}
	if info, err := os.Stat(a.keysFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		fmt.Fprintf(p.stderr, "retrysafe: warning: everybody on this machine may read %s; chmod 600 it\n", visible(a.keysFile))
	}
	if err := sealed.Check(ctx, below, ring); errors.Is(err, retrysafe.ErrUnreadable) {
		return nil, misused("the keys in %s are not those of %s: %v", a.keysFile, a, err)
	} else if err != nil {
		return nil, a.trouble(err)
	}
	return sealed.New(below, ring)
}

// mustBePlain reports, as far as a few records tell, that a store is encrypted.
func (a *address) mustBePlain(ctx context.Context, s retrysafe.Store) error {
	few, err := s.List(ctx, retrysafe.Query{Limit: 16})
	if err != nil {
		return a.trouble(err)
	}
	for i := range few {
		if len(few[i].KeyText) > 0 {
			return misused("the records of %s are encrypted", a).hinted("name their keys: --keys-file FILE, encryption.keys_file of a configuration, or $%s", keysVariable)
		}
	}
	return nil
}

// close ends the desk: what the store has not confirmed yet is offered once more.
func (d *desk) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answers)
	defer cancel()
	_ = d.Drain(ctx)     // what is not stored by then is repeated under its ID
	_ = d.opened.Close() // all that was to be stored is, or was reported
}
