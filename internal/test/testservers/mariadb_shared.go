package testservers

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

// sharedMariaDB is the server that the tests of one process have in common.
var sharedMariaDB struct {
	mu     sync.Mutex
	server *MariaDB
	count  int
}

// SharedMariaDB returns the data source name of a fresh database on a MariaDB server that
// all tests of the process share, in memory. The database goes away with the test, the
// server with Main. As with [Shared], a test must not kill, pause or reconfigure it.
func SharedMariaDB(t TB) string {
	t.Helper()
	server, name, err := nextSharedMariaDB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dsn, err := server.CreateDatabase(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s ends:\n%s", server.name, server.Logs())
		}
		if err := server.exec(context.Background(), "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

// asNewerOnes is a setting that is the default from MariaDB 11.6.2 on: a transaction that
// meets a row which was changed since it began to read is refused.
var asNewerOnes = map[string]string{"innodb_snapshot_isolation": "ON"}

// nextSharedMariaDB starts the shared server if it is not there, and names a database.
func nextSharedMariaDB(ctx context.Context) (*MariaDB, string, error) {
	s := &sharedMariaDB
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil || !s.server.running() {
		server, err := StartMariaDB(ctx, &MariaDBOptions{InMemory: true, Settings: asNewerOnes})
		if err != nil {
			return nil, "", err
		}
		s.server = server
	}
	s.count++
	return s.server, fmt.Sprintf("test_%d", s.count), nil
}

// CreateDatabase creates an empty database and returns its data source name.
func (m *MariaDB) CreateDatabase(ctx context.Context, name string) (dsn string, err error) {
	if err := m.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", m.errorf("create database of", err)
	}
	return m.DSN(name), nil
}

// exec runs one statement on a connection of its own.
func (m *MariaDB) exec(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	db, err := sql.Open("mysql", m.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}
