package pgstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// oldestServer is the oldest major version of PostgreSQL that the tests run on.
const oldestServer = 14

// realServer is what PostgreSQL says of itself: its version, perhaps a packager's name,
// and the compiler. Servers that speak its protocol say other things: CockroachDB its own
// name, YugabyteDB a version such as 15.2-YB-2.25.0.0-b0, Aurora DSQL no compiler,
// Greenplum a date at the end.
var realServer = regexp.MustCompile(`^PostgreSQL (\d+)(?:\.\d+|beta\d+|rc\d+|devel)?(?: [^,]*)?, compiled by .+, (?:32|64)-bit$`)

// The key of the lock by which checkServer sees that locks exist.
const (
	probeHigh, probeLow = 0x72657472, 0x79736c6b // "retr", "yslk"
	probeKey            = probeHigh<<32 | probeLow
)

// lockProbe takes a shared lock and looks for it among the locks of the session. It waits
// for nothing, and changes nothing.
var lockProbe = fmt.Sprintf(`WITH l AS MATERIALIZED (SELECT pg_catalog.pg_try_advisory_xact_lock_shared(%d) AS got)
SELECT l.got AND EXISTS (SELECT FROM pg_catalog.pg_locks k WHERE l.got AND k.granted AND k.locktype = 'advisory'
   AND k.pid = pg_catalog.pg_backend_pid() AND k.classid = %d AND k.objid = %d) FROM l`, probeKey, probeHigh, probeLow)

// checkServer returns a [*foreignServerError] if the server is not a PostgreSQL that the
// store knows. Two attempts under one key exclude each other by advisory locks: a server
// whose locks do nothing would run an operation twice.
func checkServer(ctx context.Context, db querier) error {
	var version string
	if err := db.QueryRow(ctx, `SELECT pg_catalog.version()`).Scan(&version); err != nil {
		return err
	}
	known := realServer.FindStringSubmatch(version)
	if known == nil {
		return &foreignServerError{version, "is not PostgreSQL"}
	}
	if major, err := strconv.Atoi(known[1]); err != nil || major < oldestServer {
		return &foreignServerError{version, "is older than PostgreSQL " + strconv.Itoa(oldestServer)}
	}
	var locked bool
	err := db.QueryRow(ctx, lockProbe).Scan(&locked)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && (strings.HasPrefix(refused.Code, "42") || strings.HasPrefix(refused.Code, "0A")):
		return &foreignServerError{version, "has no advisory locks that the store can see (" + refused.Message + ")"}
	case err != nil:
		return err
	case !locked:
		return &foreignServerError{version, "has advisory locks that do not lock"}
	}
	return nil
}

// A foreignServerError says that the server is not a PostgreSQL that the store knows.
type foreignServerError struct {
	version string // as the server says it
	flaw    string
}

func (e *foreignServerError) Error() string {
	const shown = 100
	version := e.version
	if len(version) > shown {
		version = version[:shown] + "…"
	}
	return fmt.Sprintf("the server %s, and keys could run twice there: it says that it is %q; use PostgreSQL %d or later"+
		" (to try this server, run \"retrysafe prove\" with anyserver=true in the store's URL; a service may use it so, or by Options.AnyServer, only if every check passes)",
		e.flaw, version, oldestServer)
}

// admit checks the server, and notes the flaw of one that only anyServer lets in.
func (s *Store) admit(ctx context.Context, anyServer bool) error {
	err := checkServer(ctx, s.pool)
	var foreign *foreignServerError
	if anyServer && errors.As(err, &foreign) {
		s.flaw = foreign.flaw
		return nil
	}
	return err
}
