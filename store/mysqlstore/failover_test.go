package mysqlstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// newReplica starts a replica of a primary that has a binary log.
func newReplica(t *testing.T, primary *testservers.MariaDB) *testservers.MariaDB {
	t.Helper()
	replica := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true, Settings: map[string]string{"server_id": "2"}})
	host, port, _ := strings.Cut(primary.Addr(), ":")
	db := connect(t, replica.DSN("test"))
	exec(t, db, fmt.Sprintf(`CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1`, host, port))
	exec(t, db, `START SLAVE`)
	return replica
}

// The limit: an asynchronous replica does not have what was committed last. Promoting it
// loses answers that clients have seen, and runs their operations again. The store says so
// when it is asked, and a cache that follows the store's changes learns that it cannot
// know what it has missed.
func TestW34_FailoverToAnAsynchronousReplicaLoses(t *testing.T) {
	t.Parallel()
	primary := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true, Settings: map[string]string{"server_id": "1", "log_bin": "binlog", "sync_binlog": "1"}})
	s := open(t, primary.DSN("test"), nil)
	d, err := s.Durability(t.Context())
	if err != nil || d.Class != "A" {
		t.Errorf("without a replica Durability is %v, %v", d, err)
	}
	replica := newReplica(t, primary)
	within(t, patience, "the replica follows", func() bool {
		d, err = s.Durability(t.Context())
		return err == nil && d.Followers == 1
	})
	if d.Class != "D" || !strings.Contains(d.String(), "promoting one loses answers") {
		t.Errorf("with an asynchronous replica Durability is %v; want class D and why", d)
	}
	b := newTill(t, s, *unhurried)
	b.finish(t, oneCommit, "early")
	truth := connect(t, replica.DSN("test"))
	within(t, patience, "the replica has caught up", func() bool {
		var n int
		return truth.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM ledger WHERE name = 'early'`).Scan(&n) == nil && n == 1
	})
	exec(t, truth, `STOP SLAVE`)
	shown := map[string]string{}
	for _, mode := range modes {
		shown[mode] = string(b.finish(t, mode, "late "+mode).Body)
	}
	rec, err := s.Load(t.Context(), refOf("late "+keyed))
	must(t, err)
	overruled := done(rec, "overruled")
	overruled.Announce = true
	must(t, second(s.Swap(t.Context(), overruled)))
	_, cursor, err := s.Changes(t.Context(), "")
	must(t, err)
	must(t, primary.Kill())
	exec(t, truth, `RESET SLAVE ALL`)

	promoted := open(t, replica.DSN("test"), nil)
	after := newTill(t, promoted, *unhurried)
	if out := after.finish(t, oneCommit, "early"); !out.Replayed {
		t.Error("what the replica had is lost too")
	}
	for _, mode := range modes {
		out := after.finish(t, mode, "late "+mode)
		if out.Replayed || string(out.Body) == shown[mode] {
			t.Errorf("%s: an asynchronous replica has lost nothing; the limit that we tell of is none", mode)
		}
	}
	if _, _, err := promoted.Changes(t.Context(), cursor); !errors.Is(err, retrysafe.ErrChangesLost) {
		t.Errorf("a cache that followed the lost primary is told %v, want ErrChangesLost", err)
	}
}

// Semi-synchronous replication is class A if nothing lets a commit go without the replica.
func TestSemiSynchronousReplicationIsNamed(t *testing.T) {
	t.Parallel()
	primary := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true, Settings: map[string]string{
		"server_id": "1", "log_bin": "binlog", "sync_binlog": "1",
		"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_wait_point": "AFTER_SYNC", "rpl_semi_sync_master_timeout": "86400000", "rpl_semi_sync_master_wait_no_slave": "OFF",
	}})
	s := open(t, primary.DSN("test"), nil)
	replica := newReplica(t, primary)
	db := connect(t, replica.DSN("test"))
	for _, statement := range []string{`STOP SLAVE`, `SET GLOBAL rpl_semi_sync_slave_enabled = ON`, `START SLAVE`} {
		exec(t, db, statement)
	}
	within(t, patience, "the replica follows", func() bool {
		d, err := s.Durability(t.Context())
		return err == nil && d.SemiSync && d.Followers == 1
	})
	d, err := s.Durability(t.Context())
	if err != nil || d.Class != "A" || d.WaitPoint != "AFTER_SYNC" || len(d.Caveats) != 0 {
		t.Errorf("with a semi-synchronous replica Durability is %v, %v", d, err)
	}
	eye := connect(t, primary.DSN("test"))
	for setting, want := range map[string]string{
		`SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_COMMIT'`: "AFTER_COMMIT",
		`SET GLOBAL rpl_semi_sync_master_timeout = 10000`:             "falls back to asynchronous after 10s",
		`SET GLOBAL sync_binlog = 0`:                                  "sync_binlog is 0",
		`SET GLOBAL innodb_flush_log_at_trx_commit = 2`:               "innodb_flush_log_at_trx_commit is 2",
	} {
		exec(t, eye, setting)
		if d, err := s.Durability(t.Context()); err != nil || d.Class != "D" || !strings.Contains(d.String(), want) {
			t.Errorf("%s: Durability is %v, %v; want class D and %q", setting, d, err, want)
		}
	}
}
