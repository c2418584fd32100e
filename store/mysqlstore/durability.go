package mysqlstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Durability says what the server does with a commit before it confirms it.
type Durability struct {
	// Class is the guarantee class that the server's settings allow: A, or D if an
	// acknowledged answer can be lost.
	Class string
	// Version is the server's.
	Version string
	// FlushLog is innodb_flush_log_at_trx_commit. SyncBinlog is sync_binlog, if the server
	// writes a binary log.
	FlushLog, SyncBinlog string
	// Followers is how many replicas follow at present, and -1 if the store's user may not
	// see it. SemiSync says that commits wait for one of them at present, WaitPoint when,
	// and Fallback after how long without a reply they no longer do.
	Followers int
	SemiSync  bool
	WaitPoint string
	Fallback  time.Duration
	// Caveats say, one line each, how an acknowledged answer can be lost.
	Caveats []string
}

// String returns one line for the log at startup.
func (d Durability) String() string {
	s := fmt.Sprintf("class %s: %s, innodb_flush_log_at_trx_commit %s", d.Class, d.Version, d.FlushLog)
	if d.SyncBinlog != "" {
		s += ", sync_binlog " + d.SyncBinlog
	}
	if d.Followers >= 0 {
		s += fmt.Sprintf(", %d replicas", d.Followers)
	}
	if d.SemiSync {
		s += fmt.Sprintf(", semi-synchronous %s", d.WaitPoint)
	}
	if len(d.Caveats) > 0 {
		s += "; " + strings.Join(d.Caveats, "; ")
	}
	return s
}

const (
	// patientFallback is from when on a fall-back to asynchronous replication counts as
	// none.
	patientFallback = 24 * time.Hour
	// longest is what a time-out beyond it counts as: the servers take larger numbers.
	longest = 100 * 365 * 24 * time.Hour
)

// Durability asks the server. A program should log the result at startup.
func (s *Store) Durability(ctx context.Context) (Durability, error) {
	v, err := readVariables(ctx, s.steps.db)
	if err != nil {
		return Durability{}, fmt.Errorf("mysqlstore: durability: %w", explain(err))
	}
	status, err := readPairs(ctx, s.steps.db, `SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status', 'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients')`)
	if err != nil {
		return Durability{}, fmt.Errorf("mysqlstore: durability: %w", explain(err))
	}
	d := Durability{Class: "A", Version: v["version"], FlushLog: v["innodb_flush_log_at_trx_commit"], Followers: s.followers(ctx, status)}
	lose := func(caveat string) { d.Class, d.Caveats = "D", append(d.Caveats, caveat) }
	if d.FlushLog != "1" {
		lose("innodb_flush_log_at_trx_commit is " + d.FlushLog + ": a crash loses up to a second of answers (set it to 1)")
	}
	if value, ok := v["innodb_doublewrite"]; ok && strings.EqualFold(value, "OFF") {
		lose("innodb_doublewrite is off: a crash of the server's machine can damage pages (turn it on)")
	}
	if v.on("log_bin") {
		if d.SyncBinlog = v["sync_binlog"]; d.SyncBinlog != "1" {
			lose("sync_binlog is " + d.SyncBinlog + ": after a crash of its machine the server rolls back what is not in the binary log (set it to 1)")
		}
	}
	d.semiSync(v, status, lose)
	return d, nil
}

// followers returns how many replicas follow, or -1.
func (s *Store) followers(ctx context.Context, status variables) int {
	if n, err := strconv.Atoi(status["slaves_connected"]); err == nil { // MariaDB
		return n
	}
	var n int
	if err := s.steps.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'`).Scan(&n); err != nil || n == 0 {
		return -1 // without the right PROCESS the server shows this session alone
	}
	return n
}

// semiSync adds what semi-synchronous replication promises.
func (d *Durability) semiSync(v, status variables, lose func(string)) {
	enabled := v.on("rpl_semi_sync_master_enabled") || v.on("rpl_semi_sync_source_enabled")
	d.SemiSync = enabled && (status.on("rpl_semi_sync_master_status") || status.on("rpl_semi_sync_source_status"))
	if !enabled {
		switch {
		case d.Followers > 0:
			lose("replicas follow, but no commit waits for one: promoting one loses answers that were acknowledged (turn semi-synchronous replication on)")
		case d.Followers < 0 && v.on("log_bin"):
			d.Caveats = append(d.Caveats, "the store cannot see whether replicas follow; no commit waits for one, and promoting one would lose answers that were acknowledged")
		}
		return
	}
	d.WaitPoint = v.either("rpl_semi_sync_source_wait_point", "rpl_semi_sync_master_wait_point")
	if ms, err := strconv.ParseInt(v.either("rpl_semi_sync_source_timeout", "rpl_semi_sync_master_timeout"), 10, 64); err == nil {
		d.Fallback = time.Duration(min(ms, longest.Milliseconds())) * time.Millisecond
	}
	if !d.SemiSync {
		lose("semi-synchronous replication has fallen back to asynchronous: promoting a replica loses answers that were acknowledged")
	}
	if d.WaitPoint != "AFTER_SYNC" {
		lose("the wait point of semi-synchronous replication is " + d.WaitPoint + ": other sessions see, and replay, answers that a failover loses (set it to AFTER_SYNC)")
	}
	if d.Fallback < patientFallback {
		lose(fmt.Sprintf("semi-synchronous replication falls back to asynchronous after %v without a reply, and a failover then loses answers that were acknowledged (set its timeout to a day or more)", d.Fallback))
	}
}
