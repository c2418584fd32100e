package bench_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/bench"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) { testservers.Main(m) }

// A place is a store of a user's, and what shows that nothing else is left there.
type place struct {
	url, class string
	loads      []bench.Load
	left       func() (string, error)
}

var (
	withTransactions    = []bench.Load{bench.Bare, bench.Fresh, bench.OneCommit, bench.Replay}
	withoutTransactions = []bench.Load{bench.Bare, bench.Fresh, bench.Replay}
)

// places returns a store of each kind.
func places(t *testing.T) map[string]place {
	postgres, maria := testservers.Shared(t), testservers.SharedMariaDB(t)
	redis, cluster := testservers.NewRedis(t), testservers.NewRedisCluster(t, 2, 0)
	dynamo, dir := dynamofake.New(), t.TempDir()
	t.Cleanup(dynamo.Close)
	address, _ := strings.CutPrefix(maria, "root@tcp(")
	return map[string]place{
		"postgres": {postgres, "class A", withTransactions, func() (string, error) {
			conn, err := pgx.Connect(t.Context(), postgres)
			if err != nil {
				return "", err
			}
			defer conn.Close(t.Context())
			var names string
			err = conn.QueryRow(t.Context(), `SELECT coalesce(string_agg(nspname, ' '), '') FROM pg_namespace WHERE nspname LIKE 'retrysafe%'`).Scan(&names)
			return names, err
		}},
		"mysql": {"mysql://root@" + strings.Replace(address, ")/", "/", 1), "class ", withTransactions, func() (string, error) {
			db, err := sql.Open("mysql", maria)
			if err != nil {
				return "", err
			}
			defer db.Close()
			var names string
			err = db.QueryRow(`SELECT coalesce(group_concat(schema_name), '') FROM information_schema.schemata WHERE schema_name LIKE 'retrysafe%'`).Scan(&names)
			return names, err
		}},
		"sqlite": {"sqlite:" + filepath.Join(dir, "mine.db"), "class A", withTransactions, func() (string, error) {
			names, err := filepath.Glob(filepath.Join(dir, "*"))
			return strings.Join(names, " "), err
		}},
		"redis": {"redis://" + redis.Addr(), "class D", withoutTransactions, func() (string, error) {
			return redis.Do(t.Context(), "KEYS", "*")
		}},
		"redis cluster": {cluster.URL(), "class D", withoutTransactions, func() (all string, err error) {
			for _, n := range cluster.Nodes {
				some, failed := n.Do(t.Context(), "KEYS", "*")
				all, err = all+some, errors.Join(err, failed)
			}
			return all, err
		}},
		"dynamodb": {"dynamodb://eu-central-1/keys?endpoint=" + dynamo.URL, "class B", withoutTransactions, func() (string, error) {
			return strings.Join(dynamo.Tables(), " "), nil
		}},
	}
}

// On every store the report has every load from every number of clients, and the sandbox is
// removed: after a whole run, and after Ctrl-C.
func TestBenchOnEveryStore(t *testing.T) {
	t.Parallel()
	for name, p := range places(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r bench.Report
			out := clitest.NewShell(t, p.url).Run("bench --yes --clients 1,3 --duration 480ms --format json").Exits(0).Says("This writes test keys into")
			clitest.Must(t, json.Unmarshal([]byte(out.Out), &r))
			if !strings.HasPrefix(r.Class, p.class) || r.RoundTripSeconds <= 0 || r.CommitSeconds <= 0 || !strings.Contains(r.Sizing, "new keys a second") {
				t.Errorf("the report: %s", out.Out)
			}
			if len(r.Rows) != 2*len(p.loads) {
				t.Fatalf("%d rows, want %d: %s", len(r.Rows), 2*len(p.loads), out.Out)
			}
			for i, row := range r.Rows {
				if row.Clients != []int{1, 3}[i/len(p.loads)] || row.Load != p.loads[i%len(p.loads)] {
					t.Errorf("row %d: %+v", i, row)
				}
				if row.PerSecond <= 0 || row.Least > row.PerSecond || row.Most < row.PerSecond || (row.BesideBare > 0) == (row.Load == bench.Replay) || row.P50Seconds <= 0 || row.P99Seconds < row.P50Seconds {
					t.Errorf("row %d: %+v", i, row)
				}
			}
			nothingLeft(t, &p)

			code, text := interrupted(t, p.url, func() {})
			if code != 130 || !strings.Contains(text, "interrupted; what was written in") {
				t.Errorf("after Ctrl-C: exit %d\n%s", code, text)
			}
			nothingLeft(t, &p)
		})
	}
}

func nothingLeft(t *testing.T, p *place) {
	t.Helper()
	if left, err := p.left(); err != nil || left != "" {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// interrupted runs the command for a long time and interrupts it when it has measured a
// commit. Then it calls also.
func interrupted(t *testing.T, url string, also func()) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := &watcher{text: "for one row", then: func() { also(); cancel() }}
	env := clitest.NewEnv()
	env.Streams = terminal.Streams{In: strings.NewReader(""), Out: seen, Err: seen, Interactive: func(any) bool { return false }}
	code = cli.Run(ctx, []string{"bench", "--store", url, "--yes", "--duration", "1h"}, env)
	return code, seen.String()
}

// A watcher calls a function when a text is written.
type watcher struct {
	bytes.Buffer
	text string
	then func()
}

func (w *watcher) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if w.then != nil && strings.Contains(w.String(), w.text) {
		w.then()
		w.then = nil
	}
	return n, err
}

// What cannot be removed is named, so that a person can do it.
func TestBenchSaysWhatItLeavesBehind(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	code, text := interrupted(t, "redis://"+server.Addr(), func() { clitest.Must(t, server.Kill()) })
	if code != 5 || !strings.Contains(text, "the prefix retrysafe-bench-") || !strings.Contains(text, "was not removed") || !strings.Contains(text, "remove it by hand") {
		t.Errorf("exit %d\n%s", code, text)
	}
}

// At a terminal the command says what it is about to do, and asks. Its report is a table and
// a sentence, and its chart an image.
func TestBenchAtATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chart := filepath.Join(dir, "bench.svg")
	sh := clitest.NewShell(t, "sqlite:"+filepath.Join(dir, "mine.db"))
	sh.Typing("no\n").Run("bench").Exits(1).Says("in a new file beside the one that you name, for about 3", "not confirmed; nothing was done")
	out := sh.Typing("yes\n").Run("bench --clients 2 --duration 240ms --chart", chart).Exits(0).
		Says("round trip", "for one row, by one client", "CLIENTS  LOAD", "bare loop", "new keys", "one commit", "replays", "At 2 clients this store takes about")
	if strings.Contains(out.Out, "This writes") {
		t.Errorf("the question is on standard output:\n%s", out.Out)
	}
	text, err := os.ReadFile(chart)
	clitest.Must(t, err)
	bars := 0
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		clitest.Must(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "title" {
			bars++
		}
	}
	if bars != 1+3 {
		t.Errorf("the chart has %d titles, want its own and one for each bar, of the loads that write:\n%s", bars, text)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBenchWrongCommandLines(t *testing.T) {
	t.Parallel()
	here := "--store sqlite:" + filepath.Join(t.TempDir(), "mine.db")
	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"bench", 2, "no store is named"},
		{"bench --store memory: --yes", 2, "no database that could be measured"},
		{"bench " + here, 2, "confirm with --yes"},
		{"bench --duration 0s --yes " + here, 2, "too short: these are 48 measurements of at least 20ms; choose 960ms or more"},
		{"bench --duration -1s --yes " + here, 2, "too short"},
		{"bench --clients 0 --yes " + here, 2, "0 clients: choose 1 to 4096"},
		{"bench --clients 5000 --yes " + here, 2, "choose 1 to 4096"},
		{"bench --clients 8,8 --yes " + here, 2, "8 clients are given twice"},
		{"bench --clients many --yes " + here, 2, "see retrysafe bench --help"},
		{"bench --clients= --yes " + here, 2, "see retrysafe bench --help"},
		{"bench --chart none/x.svg --yes " + here, 2, "no such file"},
		{"bench extra", 2, `"extra" is one argument too many`},
		{"bench --yes --store sqlite:none/x.db", 3, "none"},
		{"bench --yes --store postgres://127.0.0.1:1/x", 3, "127.0.0.1"},
	} {
		out := clitest.NewShell(t, "").Run(c.line)
		if out.Code != c.code || !strings.Contains(out.Err, c.says) || out.Out != "" {
			t.Errorf("%s: exit %d, want %d and %q\n%s%s", c.line, out.Code, c.code, c.says, out.Out, out.Err)
		}
	}
}

// The sentence at the end follows from the figures.
func TestBenchSizing(t *testing.T) {
	t.Parallel()
	rows := []bench.Row{
		{Clients: 1, Load: bench.Fresh, PerSecond: 400},
		{Clients: 32, Load: bench.Bare, PerSecond: 5000},
		{Clients: 32, Load: bench.Fresh, PerSecond: 9049},
		{Clients: 256, Load: bench.Fresh, PerSecond: 16_449},
	}
	for _, c := range []struct {
		report bench.Report
		want   string
	}{
		{
			bench.Report{Kind: "postgres", RoundTripSeconds: 0.0001, CommitSeconds: 0.0012, Rows: rows},
			"At 32 clients this store takes about 9,000 new keys a second: 780 million a day. At 256 clients it takes about 16,000. A disk flush of 1.10 ms is what limits it: a new key waits for two.",
		},
		{
			bench.Report{Kind: "postgres", RoundTripSeconds: 0.002, CommitSeconds: 0.0021, Rows: rows[:3]},
			"At 32 clients this store takes about 9,000 new keys a second: 780 million a day. A round trip of 2.00 ms is what limits it: a new key waits for two. Run what uses the store nearer to it.",
		},
		{
			bench.Report{Kind: "sqlite", RoundTripSeconds: 0.00001, CommitSeconds: 0.0001, Rows: rows[:1]},
			"At 1 client this store takes about 400 new keys a second: 35 million a day. Flush and round trip are short here, so processors are what limits it.",
		},
		{
			bench.Report{Kind: "dynamodb", RoundTripSeconds: 0.004, CommitSeconds: 0.0062, Rows: []bench.Row{{Clients: 8, Load: bench.Fresh, PerSecond: 7.4}}},
			"At 8 clients this store takes about 7 new keys a second: 640,000 a day. A new key waits for two writes, of 6.20 ms each here.",
		},
	} {
		c.report.Conclude()
		if c.report.Sizing != c.want {
			t.Errorf("it says\n%s\nwant\n%s", c.report.Sizing, c.want)
		}
	}
}

// Operations that failed are counted and explained.
func TestBenchReportsFailures(t *testing.T) {
	t.Parallel()
	r := bench.Report{Began: time.Unix(0, 0), Rows: []bench.Row{{Clients: 256, Load: bench.Bare, PerSecond: 10, Completed: 4970, Failed: 30, Failure: "too many\x1b[0m clients"}}}
	var out bytes.Buffer
	clitest.Must(t, r.Tail(&out))
	if want := `bare loop, 256 clients: 30 of 5,000 operations failed, the first with: too many\x1b[0m clients`; !strings.Contains(out.String(), want) {
		t.Errorf("it says:\n%s\nwant %s", &out, want)
	}
}
