package storeurl_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestEachKindOpensAndKeepsARecord(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	maria := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true})
	for kind, address := range map[string]string{
		"memory":   "memory:",
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "a b?.db"),
		"postgres": pg.URL("postgres") + "&schema=elsewhere",
		"mysql":    "mysql://root@" + maria.Addr() + "/test",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o, err := storeurl.Open(t.Context(), address, &storeurl.Options{SkipMigrations: true})
			if err == nil { // MySQL opens, and takes no step
				_, err = o.Store.List(t.Context(), retrysafe.Query{})
				_ = o.Close()
			}
			if (err == nil) != (kind == "memory") {
				t.Errorf("without tables, which are not to be made: %v", err)
			}
			o, err = storeurl.Open(t.Context(), address, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			class, err := storeurl.Class(t.Context(), o.Store)
			if want := map[string]string{"memory": storeurl.MemoryClass, "sqlite": storeurl.SQLiteClass}[kind]; err != nil || class == "" || want != "" && class != want {
				t.Errorf("the class is %q, %v", class, err)
			}
			if o.Kind != kind || o.Shared == (kind == "memory") || o.Outbox == nil {
				t.Errorf("opened %+v", o)
			}
			ref := retrysafe.Ref{Scope: "s", Key: "k"}
			if _, err := o.Store.Create(t.Context(), retrysafe.Write{Record: retrysafe.Record{Ref: ref, Owner: retrysafe.Owner{1}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1}}); err != nil {
				t.Fatal(err)
			}
			if r, err := o.Store.Load(t.Context(), ref); err != nil || r.State != retrysafe.StateInProgress {
				t.Errorf("Load = %v, %v", r.State, err)
			}
		})
	}
}

// A store that a move has closed is opened for a move, and for nothing else.
func TestEachKindOpensForAMove(t *testing.T) {
	t.Parallel()
	dynamo, _ := newDynamoDB(t)
	for kind, address := range map[string]string{
		storeurl.SQLite:   "sqlite:" + filepath.Join(t.TempDir(), "keys.db"),
		storeurl.Postgres: testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true}).URL("postgres"),
		storeurl.MySQL:    "mysql://root@" + testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true}).Addr() + "/test",
		storeurl.Redis:    "redis://" + testservers.NewRedis(t).Addr(),
		storeurl.DynamoDB: dynamo,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o, err := storeurl.Open(t.Context(), address, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			m := o.Store.(interface{ Mover() storemove.Store }).Mover()
			if err := m.Fill(t.Context(), retrysafe.Owner{1}, retrysafe.Owner{9}, "elsewhere"); err != nil {
				t.Fatal(err)
			}
			for _, moving := range []bool{false, true} {
				again, err := storeurl.Open(t.Context(), address, &storeurl.Options{Moving: moving})
				if err == nil {
					again.Close()
				}
				if moving != (err == nil) || !moving && !errors.Is(err, storemove.ErrFilling) {
					t.Errorf("with Moving %t: %v", moving, err)
				}
			}
		})
	}
}

// A server of PostgreSQL that is set to lose answers is warned of, as those of the other
// stores are.
func TestPostgresThatLosesAnswersIsNamed(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	o, err := storeurl.Open(t.Context(), pg.URL("postgres"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if got := storeurl.Caveats(t.Context(), o.Store); len(got) != 0 {
		t.Errorf("a durable server has the caveats %q", got)
	}
	if err := pg.Configure(t.Context(), "full_page_writes", "off"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for deadline := time.Now().Add(time.Minute); len(got) == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got = storeurl.Caveats(t.Context(), o.Store) // a session reads its settings before its next statement
	}
	if len(got) != 1 || !strings.Contains(got[0], "class D: full_page_writes is off") {
		t.Errorf("a server with full_page_writes off has the caveats %q", got)
	}
}

func TestBadAddressesTeach(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                             "a store is",
		"keys.db":                      "sqlite:FILE",
		"sqlite:":                      "needs a file",
		"memory:keys":                  "nothing behind the colon",
		"mysql://u:p@h":                "without a database",
		"mysql:///db":                  "without a host",
		"mysql://u:se cret@h/db":       "%40",
		"mysql://u:p@h/db?tls=absent":  "parameter that the driver refuses",
		"oracle://h/db":                "no store of the kind",
		"postgres://u:se cret@h/db":    "%40",
		"postgres://h/db?pgbouncer=x":  "true or false",
		"postgres://h/db?anyserver=1x": "anyserver=1x in a PostgreSQL URL: true or false",
		"u:secret@h/db":                "did you mean postgres://user:password@host/database?",
		"pgsql://u:secret@h/db":        "did you mean postgres://user:password@host/database?",
		"localhost:5432/db":            "did you mean postgres://user:password@localhost:5432/db?",
		"redis:127.0.0.1:6379":         "did you mean redis://user:password@host?",
		"mysql:u:secret@h/db":          "did you mean mysql://user:password@host/database?",
		"dynamodb:eu-central-1/keys":   "did you mean dynamodb://REGION/TABLE?",
		"/var/lib/keys.db":             "did you mean sqlite:/var/lib/keys.db?",
		"sqlite3:///keys.db":           "did you mean sqlite:/keys.db?",
		"file:keys.db?key=secret":      "no store of the kind",
	} {
		_, err := storeurl.Parse(address)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want %q in it", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestRedactTellsNoPassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"postgres://u:secret@h/db", "mysql://u:secret@h/db", "postgres://h/db?user=u&password=secret", "postgres://h/db?sslpassword=secret", "host=h password=secret",
		"redis://u:secret@h/1?prefix=x", "redis+sentinel://u:secret@a,b/pay", "redis+sentinel://a,b/pay?sentinel_username=u&sentinel_password=secret&prefix=x", "redis://u:a/secret@h", "redis://u:a?secret@h"} {
		if got := storeurl.Redact(address); strings.Contains(got, "secret") {
			t.Errorf("Redact = %s", got)
		}
	}
}

// What an address says reaches the store, and what only this package understands does not reach the server.
func TestAddressesAreParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]storeurl.Address{
		"memory:":             {Kind: storeurl.Memory},
		"sqlite:keys.db":      {Kind: storeurl.SQLite, Path: "keys.db"},
		"sqlite:///v/keys.db": {Kind: storeurl.SQLite, Path: "/v/keys.db"},
		"postgres://u:p@h/db": {Kind: storeurl.Postgres, URL: "postgres://u:p@h/db"},
		"postgresql://h/db":   {Kind: storeurl.Postgres, URL: "postgresql://h/db"},
		"postgres://h/db?sslmode=disable&schema=x&pgbouncer=true":   {Kind: storeurl.Postgres, URL: "postgres://h/db?sslmode=disable", Schema: "x", PgBouncer: true},
		"postgres://h/db?anyserver=true&pgbouncer=false":            {Kind: storeurl.Postgres, URL: "postgres://h/db", AnyServer: true},
		"redis+sentinel://a,b/pay?sentinel_password=x%26y&prefix=z": {Kind: storeurl.Redis, URL: "redis+sentinel://a,b/pay?sentinel_password=x%26y", Redis: storeurl.RedisAddress{Prefix: "z"}},
		"redis://h:1?replicas=1&existing=false":                     {Kind: storeurl.Redis, URL: "redis://h:1", Redis: storeurl.RedisAddress{Replicas: 1}},
	} {
		if got, err := storeurl.Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"mysql://u:p%40ss@h/db":                        "u p@ss h:3306 db ",
		"mariadb://u@[::1]:3307/db?tls=skip-verify":    "u  [::1]:3307 db skip-verify",
		"mysql://u:p%3F%2Fx@h/a?tls=preferred&loc=UTC": "u p?/x h:3306 a preferred",
	} {
		a, err := storeurl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mysql.ParseDSN(a.DSN)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join([]string{c.User, c.Passwd, c.Addr, c.DBName, c.TLSConfig}, " "); got != want || a.Kind != storeurl.MySQL {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
	const table = "dynamodb://eu-central-1/keys?endpoint=http%3A%2F%2F127.0.0.1%3A8000"
	if a, err := storeurl.Parse(table); err != nil || a.DynamoDBURL() != table || a.Endpoint != "http://127.0.0.1:8000" {
		t.Errorf("Parse(%q) = %+v, %v", table, a, err)
	}
}

// A store without transactions takes part in none of its caller's.
func TestStoresThatJoinTransactions(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"memory:": true, "sqlite:a.db": true, "postgres://h/d": true, "mysql://h/d": true, "redis://h": false, "dynamodb://eu-central-1/keys": false, "nonsense": false,
	} {
		if got := storeurl.JoinsTransactions(address); got != want {
			t.Errorf("%s joins transactions: %v", address, got)
		}
		a, err := storeurl.Parse(address)
		if bounded := a.MaxAnswer() > 0; err == nil && bounded != (a.Kind == storeurl.DynamoDB) {
			t.Errorf("%s keeps answers of %d bytes", address, a.MaxAnswer())
		}
	}
}
