package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Options are what may differ between inboxes.
type Options struct {
	// Keep is how long a key is remembered, 30 days unless set. It is stored with
	// the key.
	Keep time.Duration
	// Schema is where the tables are in PostgreSQL, unless the search path says so.
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

// database is what differs between drivers.
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

// newInbox checks what every constructor is given. The consumer's name is part of
// every key: another name applies all messages anew.
func newInbox[T any](consumer string, opts *Options, db database[T], sql *dialect) (*Inbox[T], error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	switch {
	case consumer == "":
		return nil, errors.New("inbox: the consumer has no name; two consumers of one message must not take it from each other")
	case len(consumer) > maxName || !utf8.ValidString(consumer):
		return nil, fmt.Errorf("inbox: the consumer's name is over %d bytes, or no text", maxName)
	case o.Keep < 0:
		return nil, errors.New("inbox: Keep is negative")
	case o.Keep > 0 && o.Keep < time.Second:
		return nil, errors.New("inbox: Keep is under a second; no message comes again so soon")
	case o.Keep == 0:
		o.Keep = defaultKeep
	}
	return &Inbox[T]{consumer, o.Keep, db, sql.in(o.Schema)}, nil
}

// Once runs fn in a transaction of its own and commits it, unless the message was
// applied before. It reports whether fn has run. Either way the message is done
// when the error is nil. An error of fn's, or a panic, rolls everything back, the
// key too: the message is fresh when it comes again. After an error of the commit
// nobody can say; let the message come again, and the inbox will know.
//
// Of several deliveries of one message at once the first to write its key runs.
// The others wait until its transaction ends: if it commits they report false, and
// if it does not one of them runs.
func (b *Inbox[T]) Once(ctx context.Context, m Message, fn func(ctx context.Context, tx T) error) (bool, error) {
	tx, err := b.db.begin(ctx)
	if err != nil {
		return false, fmt.Errorf("inbox: begin: %w", err)
	}
	fresh, err := b.OnceTx(ctx, tx, m, fn)
	if err != nil {
		return false, err // it is rolled back
	}
	joined := b.db.join(tx)
	if !fresh {
		return false, joined.rollback(context.WithoutCancel(ctx)) // it has written nothing
	}
	if err := joined.commit(context.WithoutCancel(ctx)); err != nil {
		return false, fmt.Errorf("inbox: commit: %w", err)
	}
	return true, nil
}

// OnceTx is [Inbox.Once] in a transaction of the caller's, over the inbox's own
// database: fn must write in that transaction, and the caller commits it, also when
// fn has not run. An error rolls it back, so that a caller who ignores it cannot
// commit; of a savepoint, only the savepoint.
//
// In a transaction stricter than READ COMMITTED who has waited for another gets the
// database's serialization failure instead of false, and gets false when the
// message comes again.
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
		// A later statement, which sees what the other has committed meanwhile.
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
		// It was purged in between.
	}
	return false, errors.New("inbox: the key comes and goes; is it purged while it is new?")
}

// Purge forgets keys whose time is over, at most limit, whichever consumer's they
// are, and returns how many. Call it now and then until it returns less than limit.
// What another transaction is working on is left for later.
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
