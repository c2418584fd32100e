package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// minPacket is the smallest max_allowed_packet that the store accepts: an answer, a
// request and a checkpoint of a megabyte each have to go into one statement.
const minPacket = 4 << 20

// checkServer refuses a server, or a session, on which the store would lose or change
// data. Each error says what to set.
func checkServer(ctx context.Context, db *sql.DB) (mariaDB bool, err error) {
	v, err := readVariables(ctx, db)
	if err != nil {
		return false, fmt.Errorf("mysqlstore: read the server's settings: %w", explain(err))
	}
	for _, err := range []error{v.checkVersion(), v.checkSession(), v.checkSettings()} {
		if err != nil {
			return false, err
		}
	}
	return v.isMariaDB(), nil
}

// variables are the server's variables that the store looks at, as a session has them.
// One that the server does not have is missing.
type variables map[string]string

var variableNames = []any{
	"version", "version_comment", "sql_mode", "autocommit", "tx_isolation", "transaction_isolation",
	"innodb_rollback_on_timeout", "max_allowed_packet", "wsrep_on", "read_only", "super_read_only", "innodb_read_only",
	"innodb_flush_log_at_trx_commit", "innodb_doublewrite", "sync_binlog", "log_bin",
	"rpl_semi_sync_master_enabled", "rpl_semi_sync_master_wait_point", "rpl_semi_sync_master_timeout",
	"rpl_semi_sync_source_enabled", "rpl_semi_sync_source_wait_point", "rpl_semi_sync_source_timeout",
}

func readVariables(ctx context.Context, db *sql.DB) (variables, error) {
	return readPairs(ctx, db, `SHOW SESSION VARIABLES WHERE Variable_name IN `+quoted(variableNames))
}

// quoted returns names as a list of literals: the servers prepare no SHOW with parameters.
func quoted(names []any) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("'%v'", name)
	}
	return "(" + strings.Join(list, ", ") + ")"
}

func readPairs(ctx context.Context, db execer, query string) (variables, error) {
	v := variables{}
	err := runOn(ctx, db, statement{sql: query, each: func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		v[strings.ToLower(name)] = value
		return err
	}})
	return v, err
}

func (v variables) on(name string) bool {
	switch strings.ToUpper(v[name]) {
	case "ON", "1", "YES":
		return true
	default:
		return false
	}
}

// either returns the first of the variables that the server has.
func (v variables) either(names ...string) string {
	for _, name := range names {
		if value, ok := v[name]; ok {
			return value
		}
	}
	return ""
}

func (v variables) isMariaDB() bool {
	return strings.Contains(strings.ToLower(v["version"]), "mariadb")
}

var leadingVersion = regexp.MustCompile(`^(\d+)\.(\d+)`)

// checkVersion refuses servers that are not known to keep what the store relies on.
func (v variables) checkVersion() error {
	version := v["version"]
	for _, other := range []string{"tidb", "vitess", "oceanbase", "singlestore"} {
		if strings.Contains(strings.ToLower(version+" "+v["version_comment"]), other) {
			return fmt.Errorf("mysqlstore: the server is %s, which speaks MySQL's protocol but has other locks; use MySQL 8 or MariaDB 10.11", version)
		}
	}
	if v.on("wsrep_on") {
		return errors.New("mysqlstore: the server is a node of a Galera cluster, whose nodes do not see each other's locks; use a single primary")
	}
	parts := leadingVersion.FindStringSubmatch(version)
	if parts == nil {
		return fmt.Errorf("mysqlstore: the server's version %q is not known; use MySQL 8 or MariaDB 10.11", version)
	}
	major, _ := strconv.Atoi(parts[1])
	minor, _ := strconv.Atoi(parts[2])
	oldest, minorOldest := 8, 0
	if v.isMariaDB() {
		oldest, minorOldest = 10, 11
	}
	if major < oldest || major == oldest && minor < minorOldest {
		return fmt.Errorf("mysqlstore: the server is %s; the store needs MySQL 8.0, or MariaDB 10.11, or later", version)
	}
	return nil
}

// checkSession refuses sessions whose transactions the store must not join.
func (v variables) checkSession() error {
	isolation := v.either("transaction_isolation", "tx_isolation")
	name := "transaction_isolation"
	if _, ok := v[name]; !ok {
		name = "tx_isolation"
	}
	if isolation != "READ-COMMITTED" {
		return fmt.Errorf("mysqlstore: the sessions of the database are %s, and a transaction would see old records and lock the gaps between keys; add %s=%%27READ-COMMITTED%%27 to the data source name, or use mysqlstore.Open", isolation, name)
	}
	if mode := v["sql_mode"]; !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES") {
		return fmt.Errorf("mysqlstore: sql_mode is %q, and the server would cut off what does not fit; add STRICT_TRANS_TABLES to sql_mode", mode)
	}
	if !v.on("autocommit") {
		return errors.New("mysqlstore: autocommit is off, and a step would not be committed; set autocommit=1 in the data source name, which wins over the server")
	}
	return nil
}

// checkSettings refuses settings of the server.
func (v variables) checkSettings() error {
	if v.on("innodb_rollback_on_timeout") {
		return errors.New("mysqlstore: innodb_rollback_on_timeout is on: a transaction whose wait for a lock has ended would go on without its first half; turn it off")
	}
	if n, err := strconv.Atoi(v["max_allowed_packet"]); err == nil && n < minPacket {
		return fmt.Errorf("mysqlstore: max_allowed_packet is %d, and large answers could not be stored; set it to %d or more", n, minPacket)
	}
	if v.on("innodb_read_only") || v.on("super_read_only") {
		return errors.New("mysqlstore: " + readOnlyHint)
	}
	return nil
}

// checkTables returns an error if the tables are not of the engine that has transactions,
// which a server without InnoDB would put in its place.
func checkTables(ctx context.Context, db *sql.DB) error {
	var others sql.NullString
	err := db.QueryRowContext(ctx, `SELECT GROUP_CONCAT(CONCAT(TABLE_NAME, ' (', ENGINE, ')')) FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE' AND TABLE_NAME LIKE 'retrysafe\_%' AND ENGINE <> 'InnoDB'`).Scan(&others)
	if err != nil {
		return fmt.Errorf("mysqlstore: read the tables: %w", explain(err))
	}
	if others.Valid {
		return fmt.Errorf("mysqlstore: tables are not of InnoDB, and would keep half of a transaction: %s; ALTER TABLE them to ENGINE = InnoDB", others.String)
	}
	return nil
}

// checkColumns returns an error if the table of keys is not there or lacks columns.
func checkColumns(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, `SELECT `+columns+` FROM retrysafe_keys LIMIT 0`); err != nil {
		return fmt.Errorf("mysqlstore: read the table of keys: %w", explain(err))
	}
	return nil
}
