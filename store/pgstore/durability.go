package pgstore

import (
	"context"
	"fmt"
	"strings"
)

// A Durability says what the server does with a commit before it confirms it.
type Durability struct {
	// Class is the guarantee class that the server's settings allow: A, or D if an
	// acknowledged answer can be lost.
	Class string
	// Fsync, FullPageWrites, SynchronousCommit and SynchronousStandbys are the settings of
	// a new session of the caller's.
	Fsync, FullPageWrites bool
	SynchronousCommit     string
	SynchronousStandbys   string
	// Followers is how many standbys follow at present. Synchronous is how many of them
	// commits wait for.
	Followers, Synchronous int
	// Caveats say, one line each, how an acknowledged answer can be lost.
	Caveats []string
}

// String returns one line for the log at startup.
func (d Durability) String() string {
	if d.SynchronousCommit == "" { // of a server that has no such settings
		return "class " + d.Class + ": " + strings.Join(d.Caveats, "; ")
	}
	s := fmt.Sprintf("class %s: fsync %t, synchronous_commit %s, %d standbys, %d of them synchronous", d.Class, d.Fsync, d.SynchronousCommit, d.Followers, d.Synchronous)
	if len(d.Caveats) > 0 {
		s += "; " + strings.Join(d.Caveats, "; ")
	}
	return s
}

// Durability asks the server. A program should log the result at startup.
func (s *Store) Durability(ctx context.Context) (d Durability, err error) {
	if s.flaw != "" {
		return Durability{Class: "D", Caveats: []string{"the server " + s.flaw + ": what its commits survive is not known here"}}, nil
	}
	err = s.pool.QueryRow(ctx, `SELECT current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
       (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), current_setting('synchronous_standby_names'),
       (SELECT count(*) FROM pg_stat_replication), (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`).
		Scan(&d.Fsync, &d.FullPageWrites, &d.SynchronousCommit, &d.SynchronousStandbys, &d.Followers, &d.Synchronous)
	if err != nil {
		return d, fmt.Errorf("pgstore: durability: %w", explain(err))
	}
	lose := func(caveat string) { d.Class, d.Caveats = "D", append(d.Caveats, caveat) }
	d.Class = "A"
	if !d.Fsync {
		lose("fsync is off: a crash of the server's machine loses answers, or the database")
	}
	if !d.FullPageWrites {
		lose("full_page_writes is off: a crash of the server's machine can damage pages")
	}
	switch d.SynchronousCommit {
	case "off":
		lose("synchronous_commit is off: the store's own steps turn it on, transactions of yours must do so too")
	case "local", "remote_write":
		if d.SynchronousStandbys != "" {
			lose("synchronous_commit is " + d.SynchronousCommit + ": a transaction of yours is confirmed before the standby has flushed it")
		}
	}
	if d.Followers > 0 && d.SynchronousStandbys == "" {
		lose("standbys follow, but no commit waits for one: promoting one loses answers that were acknowledged (set synchronous_standby_names)")
	}
	return d, nil
}
