package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Options configure an [Inbox]. Nil and zero values select the defaults.
type Options struct {
	// Keep is how long a key is remembered. It is stored with the key. Default 30 days.
	Keep time.Duration
	// Schema is the schema of the tables in PostgreSQL. If it is empty, the search path
	// decides.
	Schema string
}

const defaultKeep = 30 * 24 * time.Hour

// An Inbox remembers which messages a consumer has applied. T is the transaction of
// its driver. It is safe for concurrent use.
type Inbox[T any] struct {
	consumer string
	keep     time.Duration
	db       database[T]
	sql      *dialect
}

// database is the part that differs between drivers.
type database[T any] interface {
	begin(ctx context.Context) (T, error)
	join(tx T) transaction
	// inTx runs do in a transaction that can change the schema, commits it, and
	// rolls it back if do fails. In SQLite it takes the write lock when it begins.
	inTx(ctx context.Context, do func(session) error) error
	// outside runs each statement in a transaction of its own.
	outside() session
}

// A session runs statements.
type session interface {
	exec(ctx context.Context, sql string, args ...any) (int64, error)
	// read reads one value, and reports whether there was a row.
	read(ctx context.Context, into any, sql string, args ...any) (bool, error)
}

// A transaction is a session whose statements are committed together.
type transaction interface {
	session
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
}

// An intactTx is a transaction that knows whether a statement of fn has ended it.
type intactTx interface {
	// intact returns an error if the transaction has ended.
	intact(ctx context.Context) error
}

// newInbox checks the arguments of all constructors. The consumer's name is part of
// every key: under another name all messages are applied again.
func newInbox[T any](consumer string, opts *Options, db database[T], sql *dialect) (*Inbox[T], error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	switch {
	case consumer == "":
		return nil, errors.New("inbox: the consumer has no name; without names, two consumers would share their keys, and each message would be applied by only one of them")
	case len(consumer) > maxName || !utf8.ValidString(consumer):
		return nil, fmt.Errorf("inbox: the consumer's name is over %d bytes, or not UTF-8", maxName)
	case o.Keep < 0:
		return nil, errors.New("inbox: Keep is negative")
	case o.Keep > 0 && o.Keep < time.Second:
		return nil, errors.New("inbox: Keep is under a second, which is shorter than any redelivery")
	case o.Keep == 0:
		o.Keep = defaultKeep
	}
	return &Inbox[T]{consumer, o.Keep, db, sql.in(o.Schema)}, nil
}

// Once runs fn in a transaction of its own and commits it, unless the message was
// applied before. It reports whether fn has run. If the error is nil the message is
// done, in both cases. If fn returns an error or panics, everything is rolled back,
// the key too, and the message is fresh at its next delivery. If the commit returns an
// error, the outcome is unknown: let the message be delivered again, and the inbox
// finds out.
//
// If one message is delivered several times at once, the delivery that writes its key
// first runs fn. The others wait until its transaction ends. If it commits, they return
// false; if it does not, one of them runs fn.
func (b *Inbox[T]) Once(ctx context.Context, m Message, fn func(ctx context.Context, tx T) error) (bool, error) {
	for try := 1; ; try++ {
		ran := false
		fresh, err := b.once(ctx, m, func(ctx context.Context, tx T) error {
			ran = true
			return fn(ctx, tx)
		})
		if err == nil || ran || try == deadlockTries || b.sql.isDeadlock == nil || !b.sql.isDeadlock(err) {
			return fresh, err
		}
	}
}

// deadlockTries bounds how often a message is tried again whose key could not be written
// because of a deadlock. Nothing has happened then: fn did not run.
const deadlockTries = 20

func (b *Inbox[T]) once(ctx context.Context, m Message, fn func(ctx context.Context, tx T) error) (bool, error) {
	tx, err := b.db.begin(ctx)
	if err != nil {
		return false, fmt.Errorf("inbox: begin: %w", err)
	}
	fresh, err := b.OnceTx(ctx, tx, m, fn)
	if err != nil {
		return false, err // OnceTx has rolled it back
	}
	joined := b.db.join(tx)
	if !fresh {
		return false, joined.rollback(context.WithoutCancel(ctx)) // the transaction has written nothing
	}
	if err := joined.commit(context.WithoutCancel(ctx)); err != nil {
		return false, fmt.Errorf("inbox: commit: %w", err)
	}
	return true, nil
}

// OnceTx is [Inbox.Once] in the caller's transaction, which must be on the inbox's own
// database. Fn must write in that transaction, and the caller commits it, also when fn
// has not run. An error rolls the transaction back, so that a caller that ignores the
// error cannot commit; in a savepoint it rolls back only the savepoint.
//
// In a transaction stricter than READ COMMITTED, a delivery that had to wait for
// another one gets the database's serialization failure instead of false. The next
// delivery of the message returns false.
func (b *Inbox[T]) OnceTx(ctx context.Context, tx T, m Message, fn func(ctx context.Context, tx T) error) (fresh bool, err error) {
	joined := b.db.join(tx)
	sound := false
	defer func() { // also when fn panics
		if sound {
			return
		}
		if failed := joined.rollback(context.WithoutCancel(ctx)); failed != nil {
			err = errors.Join(err, fmt.Errorf("inbox: roll back: %w", failed))
		}
	}()
	if err := m.check(); err != nil {
		return false, err
	}
	fresh, err = b.claim(ctx, joined, &m)
	if err == nil && fresh {
		err = fn(ctx, tx)
	}
	if t, ok := joined.(intactTx); ok && err == nil {
		err = t.intact(ctx)
	}
	if err != nil {
		return false, err
	}
	sound = true
	return fresh, nil
}

// claim writes the key, or finds it there.
func (b *Inbox[T]) claim(ctx context.Context, tx session, m *Message) (fresh bool, err error) {
	id := m.identity(b.consumer)
	seen := m.print(id)
	for range 3 {
		n, err := tx.exec(ctx, b.sql.insert, id[:], b.consumer, seen, int64(b.keep/time.Second))
		if err != nil {
			return false, fmt.Errorf("inbox: write key: %w", err)
		}
		if n == 1 || len(seen) == 0 {
			return n == 1, nil
		}
		// A second statement sees what the other transaction has committed meanwhile.
		var before []byte
		found, err := tx.read(ctx, &before, b.sql.print, id[:])
		switch {
		case err != nil:
			return false, fmt.Errorf("inbox: read key: %w", err)
		case found && len(before) > 0 && !bytes.Equal(before, seen):
			return false, ErrMismatch
		case found:
			return false, nil
		}
		// The key was purged in between.
	}
	return false, errors.New("inbox: the key was purged three times while the message was checked; are new keys purged?")
}

// Purge deletes at most limit keys whose time is over, of all consumers, and returns
// how many. Call it periodically, and each time repeat it until it returns less than
// limit. Rows that another transaction has locked are left for later.
func (b *Inbox[T]) Purge(ctx context.Context, limit int) (int, error) {
	if limit < 1 {
		return 0, errors.New("inbox: purge: the limit is not positive")
	}
	n, err := b.db.outside().exec(ctx, b.sql.purge, limit)
	if err != nil {
		return 0, fmt.Errorf("inbox: purge: %w", err)
	}
	return int(n), nil
}
