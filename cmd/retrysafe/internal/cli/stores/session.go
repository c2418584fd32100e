package stores

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// A Session is an open store, and what an operator may do there. Close it when done.
type Session struct {
	*operator.Service
	*Location
	// Opened is the store as it is, Store the one that engines use: if there are keys, it
	// decrypts and encrypts.
	Opened *storeurl.Opened
	Store  retrysafe.Store
}

// Open opens the store that the flags name. The store must exist and have a schema that
// this program can work on.
func (f *Flags) Open(ctx context.Context, env *command.Env) (*Session, error) {
	l, err := f.Location(env)
	if err != nil {
		return nil, err
	}
	if err := l.CheckSchema(ctx); err != nil {
		return nil, err
	}
	return l.open(ctx, env)
}

func (l *Location) open(ctx context.Context, env *command.Env) (_ *Session, err error) {
	start, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	opened, err := storeurl.Open(start, l.URL, &storeurl.Options{SkipMigrations: true})
	if err != nil {
		return nil, l.StoreError(err)
	}
	defer func() {
		if err != nil {
			_ = opened.Close() // nothing was written
		}
	}()
	s := &Session{Location: l, Opened: opened}
	if s.Store, err = l.unseal(start, env, opened.Store); err != nil {
		return nil, err
	}
	receipts, _ := opened.Outbox.(outbox.ReceiptKeeper) // nil: the store keeps none
	if s.Service, err = operator.New(s.Store, &operator.Options{Receipts: receipts}); err != nil {
		return nil, err
	}
	return s, nil
}

// unseal returns the store as engines use it. Without the keys a command would write
// plain text into an encrypted store, where no engine can read it, so that is refused.
func (l *Location) unseal(ctx context.Context, env *command.Env, below retrysafe.Store) (retrysafe.Store, error) {
	if l.KeysFile == "" {
		return below, l.CheckNotEncrypted(ctx, below)
	}
	ring, err := sealed.LoadKeyring(l.KeysFile)
	if err != nil {
		return nil, exit.Usagef("%v", err).Hintf("create a new one with: retrysafe config genkeys FILE")
	}
	if info, err := os.Stat(l.KeysFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		fmt.Fprintf(env.Err, "retrysafe: warning: every user of this machine may read %s; chmod 600 it\n", printable.Text(l.KeysFile))
	}
	if err := sealed.Check(ctx, below, ring); errors.Is(err, retrysafe.ErrUnreadable) {
		return nil, l.WrongKeys(err)
	} else if err != nil {
		return nil, l.StoreError(err)
	}
	return sealed.New(below, ring)
}

// WrongKeys returns the error for a keys file that is not the store's.
func (l *Location) WrongKeys(err error) error {
	return exit.Usagef("the keys in %s are not those of %s: %v", l.KeysFile, l, err)
}

// CheckNotEncrypted returns an error if the first records of the store are encrypted.
func (l *Location) CheckNotEncrypted(ctx context.Context, s retrysafe.Store) error {
	first, err := s.List(ctx, retrysafe.Query{Limit: 16})
	if err != nil {
		return l.StoreError(err)
	}
	for i := range first {
		if len(first[i].KeyText) > 0 {
			return exit.Usagef("the records of %s are encrypted", l).
				Hintf("name their keys: --keys-file FILE, encryption.keys_file of a configuration, or $%s", KeysVariable)
		}
	}
	return nil
}

// Receipts returns receipts of delivered messages. If the store keeps none, the error is
// [errors.ErrUnsupported].
func (s *Session) Receipts(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error) {
	keeper, ok := s.Opened.Outbox.(outbox.ReceiptKeeper)
	if !ok {
		return nil, fmt.Errorf("this store keeps no receipts: %w", errors.ErrUnsupported)
	}
	return keeper.Receipts(ctx, q)
}

// Close ends the session. Actions whose end the store has not confirmed are offered to
// it once more before.
func (s *Session) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	_ = s.Drain(ctx)     // an action that is not stored by then can be repeated under its ID
	_ = s.Opened.Close() // everything that had to be stored was, or was reported
}
