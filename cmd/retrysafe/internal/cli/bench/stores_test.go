package bench_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/bench"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var (
	storesRun   = flag.Bool("stores", false, "measure every store that can be started here, one after the other; takes two minutes on a quiet machine")
	storesLasts = flag.Duration("stores.lasts", 24*time.Second, "how long each of them is measured")
	storesDoc   = flag.String("stores.doc", "", "write the table into this page")
)

// A kind is a row of the table: what is known of a store, and where one is that can be
// measured.
type kind struct {
	name, embedded, shared, joins, outbox, class string
	url                                          string // empty: not measured
}

// TestBenchStores measures every store with the command itself, all on one machine.
func TestBenchStores(t *testing.T) {
	if !*storesRun {
		t.Skip("make bench-stores runs it")
	}
	dir, err := os.MkdirTemp("", "retrysafe-bench-stores-") //nolint:usetesting // the user that servers run as may not enter t.TempDir
	clitest.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	clitest.Must(t, os.Chmod(dir, 0o777))
	postgres := testservers.NewPostgres(t, nil)
	maria := testservers.NewMariaDB(t, &testservers.MariaDBOptions{Settings: map[string]string{"innodb_buffer_pool_size": "256M", "innodb_log_file_size": "256M"}})
	redis := testservers.NewRedisWith(t, map[string]string{"dir": dir})
	kinds := []kind{
		{"[SQLite](sqlite.md)", "yes", "on one machine", "yes", "yes", "A", "sqlite:" + filepath.Join(dir, "keys.db")},
		{"[PostgreSQL](postgresql.md)", "no", "yes", "yes", "yes", "A", postgres.URL("postgres")},
		{"[MySQL, MariaDB](mysql.md)", "no", "yes", "yes", "yes", "A", "mysql://root@" + maria.Addr() + "/test"},
		{"[Redis](redis.md)", "no", "yes", "no", "no", "D", "redis://" + redis.Addr()},
		{"[DynamoDB](dynamodb.md)", "no", "in one region", "no", "no", "B", ""},
		{"`memory:`", "yes", "no", "yes", "yes", "D", ""},
	}
	var table, facts bytes.Buffer
	fmt.Fprintln(&table, "| store | embedded | shared | joins your transaction | outbox | class, at best | new keys/s, 32 clients | 256 clients | its bare loop, 32 clients | 256 clients | one commit/s, 32 clients | replays/s, 32 clients |")
	fmt.Fprintln(&table, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, k := range kinds {
		figures := []string{"–", "–", "–", "–", "–", "–"}
		if k.url != "" {
			r := measure(t, k.url)
			figures = []string{
				perSecond(r, bench.Fresh, 32), perSecond(r, bench.Fresh, 256), perSecond(r, bench.Bare, 32), perSecond(r, bench.Bare, 256),
				perSecond(r, bench.OneCommit, 32), perSecond(r, bench.Replay, 32),
			}
			fmt.Fprintf(&facts, "%s: round trip %s, commit of one row %s. ", k.name, bench.Milliseconds(r.RoundTripSeconds), bench.Milliseconds(r.CommitSeconds))
		}
		cells := append([]string{k.name, k.embedded, k.shared, k.joins, k.outbox, k.class}, figures...)
		fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | "))
	}
	t.Logf("\n%s\n%s", &table, &facts)
	if *storesDoc != "" {
		publish(t, *storesDoc, table.String(), strings.TrimSpace(facts.String()))
	}
}

// measure runs the command on a store and returns its report.
func measure(t *testing.T, url string) *bench.Report {
	t.Helper()
	out := clitest.NewShell(t, url).Run(fmt.Sprintf("bench --yes --clients 32,256 --duration %v --format json", *storesLasts)).Exits(0)
	r := new(bench.Report)
	clitest.Must(t, json.Unmarshal([]byte(out.Out), r))
	t.Log(out.Out)
	return r
}

func perSecond(r *bench.Report, l bench.Load, clients int) string {
	for _, row := range r.Rows {
		if row.Load == l && row.Clients == clients {
			hundreds := int(row.PerSecond/100 + 0.5)
			return terminal.Number(hundreds * 100)
		}
	}
	return "–"
}

// publish replaces the table of a page, which stands between two lines.
func publish(t *testing.T, page, table, facts string) {
	t.Helper()
	const begin, end = "<!-- stores: written by make bench-stores -->", "<!-- stores: end -->"
	text, err := os.ReadFile(page)
	clitest.Must(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no section between %q and %q", page, begin, end)
	}
	note := fmt.Sprintf("Measured on %s by `retrysafe bench`, one store after the other on a machine with 2 cores, which clients and server share. %s", time.Now().UTC().Format(time.DateOnly), facts)
	clitest.Must(t, os.WriteFile(page, []byte(before+begin+"\n\n"+table+"\n"+terminal.Wrap(note, 118)+"\n\n"+end+after), 0o644))
}
