package pgstore_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// foreign are servers that speak PostgreSQL's protocol, and what they answer to version().
var foreign = map[string]string{
	"CockroachDB":          `CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/06/23 15:45:51, go1.23.7 X:nocoverageredesign)`,
	"YugabyteDB":           `PostgreSQL 11.2-YB-2.18.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 15.0.3, 64-bit`,
	"YugabyteDB, newer":    `PostgreSQL 15.12-YB-2025.1.0.0-b168 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6 (https://github.com/yugabyte/llvm-project.git 9b881774), 64-bit`,
	"Aurora DSQL":          `PostgreSQL 16`,
	"Redshift":             `PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017 (Red Hat 3.4.2-6.fc3), Redshift 1.0.77467`,
	"Greenplum":            `PostgreSQL 14.4 (Greenplum Database 8.0.0 build dev) on x86_64-pc-linux-gnu, compiled by gcc (GCC) 11.4.1, 64-bit compiled on May 6 2025 11:52:36`,
	"RisingWave":           `PostgreSQL 13.14.0-RisingWave-2.4.1 (unknown)`,
	"an old PostgreSQL":    `PostgreSQL 13.22 (Debian 13.22-1.pgdg120+1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14+deb12u1) 12.2.0, 64-bit`,
	"text for a terminal":  "\x1b[31mPostgreSQL 15.1",
	"text without an end":  "PostgreSQL 15.1 on " + strings.Repeat("x", 5000),
	"no version of itself": "",
}

// genuine are servers that are PostgreSQL, as their packagers and hosts have them.
var genuine = []string{
	`PostgreSQL 14.18 (Debian 14.18-1.pgdg120+1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14) 12.2.0, 64-bit`,
	`PostgreSQL 15.4 - Percona Distribution (Ubuntu 2:15.4-2.jammy) on x86_64-pc-linux-gnu, compiled by gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0, 64-bit`,
	`PostgreSQL 16.3 on x86_64-pc-linux-musl, compiled by gcc (Alpine 13.2.1_git20240309) 13.2.1 20240309, 64-bit`,
	`PostgreSQL 16.4, compiled by Visual C++ build 1940, 64-bit`,
	`PostgreSQL 17.2 on aarch64-apple-darwin23.6.0, compiled by Apple clang version 16.0.0 (clang-1600.0.26.4), 64-bit`,
	`PostgreSQL 17.5 (6bc9ef8) on aarch64-unknown-linux-gnu, compiled by gcc (Debian 12.2.0-14+deb12u1) 12.2.0, 64-bit`,
	`PostgreSQL 18beta2 on x86_64-linux, compiled by gcc-13.3.0, 64-bit`,
	`PostgreSQL 19devel on x86_64-linux, compiled by clang-19.1.7, 64-bit`,
}

// stand makes a database answer as another server does: version is what version() returns,
// and more are further statements.
func stand(t *testing.T, version string, more ...string) (url string) {
	t.Helper()
	url = testservers.Shared(t)
	conn := connect(t, url)
	exec(t, conn, `SET allow_system_table_mods = on`)
	exec(t, conn, `CREATE OR REPLACE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql STABLE AS $$ SELECT convert_from(decode('`+hex.EncodeToString([]byte(version))+`', 'hex'), 'UTF8') $$`)
	for _, statement := range more {
		exec(t, conn, statement)
	}
	return url
}

// A server that speaks PostgreSQL's protocol and is not PostgreSQL is refused before
// anything is created there, in one line that says what to do.
func TestServerThatIsNotPostgreSQLIsRefused(t *testing.T) {
	t.Parallel()
	for name, version := range foreign {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := stand(t, version)
			conn := connect(t, url)
			for how, err := range map[string]error{
				"Open":                 second(pgstore.Open(t.Context(), url, nil)),
				"Open, PgBouncer":      second(pgstore.Open(t.Context(), url, &pgstore.Options{PgBouncer: true})),
				"Open, SkipMigrations": second(pgstore.Open(t.Context(), url, &pgstore.Options{SkipMigrations: true})),
				"MigrateTx": pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					return pgstore.MigrateTx(t.Context(), tx, "")
				}),
			} {
				if err == nil {
					t.Fatalf("%s works on %q", how, version)
				}
				text := err.Error()
				for _, want := range []string{"keys could run twice", "use PostgreSQL 14 or later", `"retrysafe prove"`, "anyserver=true", "Options.AnyServer"} {
					if !strings.Contains(text, want) {
						t.Errorf("%s: the error lacks %q: %s", how, want, text)
					}
				}
				if len(text) > 600 || strings.ContainsAny(text, "\x1b\n") {
					t.Errorf("%s: the error is not one line that can be shown: %q", how, text)
				}
			}
			if n := one[int](t, conn, `SELECT count(*) FROM pg_class WHERE relname LIKE 'retrysafe%'`); n != 0 {
				t.Errorf("%d tables were created", n)
			}
		})
	}
}

// Every packager's and host's PostgreSQL from 14 on is let in, also one that is newer than
// this program.
func TestEveryPostgreSQLIsLetIn(t *testing.T) {
	t.Parallel()
	for _, version := range genuine {
		s, err := pgstore.Open(t.Context(), stand(t, version), nil)
		if err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		must(t, s.Close())
	}
}

// A server that calls itself PostgreSQL and whose advisory locks do nothing, as
// CockroachDB's do, is refused too; so is one that has none.
func TestServerWhoseLocksDoNothingIsRefused(t *testing.T) {
	t.Parallel()
	for flaw, statement := range map[string]string{
		"do not lock":       `CREATE OR REPLACE FUNCTION pg_catalog.pg_try_advisory_xact_lock_shared(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		"no advisory locks": `REVOKE ALL ON FUNCTION pg_catalog.pg_try_advisory_xact_lock_shared(bigint) FROM PUBLIC`,
	} {
		url := stand(t, genuine[0], statement)
		conn := connect(t, url)
		role := "plain_" + one[string](t, conn, `SELECT current_database()`) // of this test alone
		exec(t, conn, `CREATE ROLE `+role+` LOGIN`)
		_, err := pgstore.Open(t.Context(), strings.Replace(url, "postgres@", role+"@", 1), nil)
		if err == nil || !strings.Contains(err.Error(), flaw) || !strings.Contains(err.Error(), "anyserver=true") {
			t.Errorf("%s: %v", flaw, err)
		}
	}
}

// With AnyServer the store works on such a server, and says that it promises nothing of
// its commits.
func TestAnyServerIsLetInWhenTold(t *testing.T) {
	t.Parallel()
	s := open(t, stand(t, foreign["CockroachDB"]), &pgstore.Options{AnyServer: true})
	must(t, second(s.Create(t.Context(), fresh("k"))))
	if _, err := s.Create(t.Context(), fresh("k")); !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("the second Create = %v", err)
	}
	d, err := s.Durability(t.Context())
	must(t, err)
	if d.Class != "D" || d.String() != "class D: the server is not PostgreSQL: what its commits survive is not known here" {
		t.Errorf("Durability = %s", d)
	}
	// On PostgreSQL itself the option changes nothing.
	d, err = open(t, testservers.Shared(t), &pgstore.Options{AnyServer: true}).Durability(t.Context())
	if err != nil || d.Class != "A" {
		t.Errorf("Durability of PostgreSQL = %s, %v", d, err)
	}
}
