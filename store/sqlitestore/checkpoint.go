package sqlitestore

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"
)

// SQLite copies the log into the file when a commit finds that the log has as many pages
// as wal_autocheckpoint says. The steps of that batch and of the next wait meanwhile: for
// thousands of pages and the flush of the file. So the store begins a little earlier, on
// another connection, while steps go on. What is left for SQLite's own checkpoint is what
// was written since, and only that one lets the log begin anew: a checkpoint beside a
// writer never does. So the log is as long as before.
//
// A file whose wal_autocheckpoint is zero has another owner of its checkpoints, and the
// store starts none.

// A checkpointer starts a checkpoint when about so many pages were written. The zero
// checkpointer starts none.
type checkpointer struct {
	every  atomic.Int64 // wal_autocheckpoint of the connection that writes; zero: never
	left   atomic.Int64 // how many pages there are to be written before the next begins
	busy   atomic.Bool
	runs   sync.WaitGroup
	passes atomic.Int64 // how many have ended well
}

// ahead is how many pages of the log there are when the checkpoint begins: so many less
// than SQLite's own needs that it ends at about that time.
func ahead(every int64) int64 { return every - every/8 }

// use adopts what the connection that writes was configured with.
func (c *checkpointer) use(every int64) {
	if c.every.Swap(max(every, 0)) != every {
		c.left.Store(ahead(every))
	}
}

// wrote counts the pages of a commit, and starts a checkpoint of db if it is time. Its
// timeout bounds how long that waits for a connection.
func (c *checkpointer) wrote(db *sql.DB, pages int, timeout time.Duration) {
	if c.every.Load() == 0 || c.left.Add(-int64(pages)) > 0 || !c.busy.CompareAndSwap(false, true) {
		return
	}
	c.runs.Go(func() {
		defer c.busy.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		every := c.every.Load()
		var blocked bool
		var log, copied int64
		if err := db.QueryRowContext(ctx, checkpointLog).Scan(&blocked, &log, &copied); err != nil || blocked {
			c.left.Store(every) // SQLite's own does it all; if the disk fails, the steps say so
			return
		}
		c.passes.Add(1)
		if log < ahead(every) { // fewer pages than were counted
			c.left.Store(ahead(every) - log)
		} else {
			c.left.Store(every - min(log, every) + ahead(every)) // behind SQLite's own
		}
	})
}

// pages estimates how many pages the commit of a batch has written: those of the index
// of ids, where new keys are all over, the rows, which share theirs, and the ends of the
// index of deadlines.
func (b *batch) pages() (n int) {
	for _, at := range b.rows {
		switch {
		case !at.changed:
		case at.number == 0:
			n += 4 // quarters
		default:
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return 3 + n/4
}
