package peers_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

var (
	matrix  = flag.String("matrix", "", "the file that gets the matrix, docs/matrix.md; empty verifies of each API only that it can be verified")
	reports = flag.String("matrix.reports", "", "the directory with the reports of the gateway on each store, for -matrix")
)

var silent = log.New(io.Discard, "", 0)

// A column is an API of the matrix.
type column struct {
	name string // the heading
	note string // what it is, in which version, and what was changed to run it
	// start starts the API, and returns how it is verified.
	start func(t *testing.T, s *shop) *conform.Options
	// report has the report, if the API was verified elsewhere.
	report string
}

func columns() []column {
	all := []column{
		{name: "gateway, memory", report: "gateway-memory", note: "`retrysafe gateway`, killed and started again where there is something to survive"},
		{name: "gateway, SQLite", report: "gateway-sqlite", note: "the same; for the outage another process locks the file"},
		{name: "gateway, PostgreSQL", report: "gateway-postgres", note: "the same on PostgreSQL 15; for the outage all connections are reset, and new ones refused"},
		{name: "gateway, MariaDB", report: "gateway-mariadb", note: "the same on MariaDB 10.11"},
		{name: "gateway, Redis", report: "gateway-redis", note: "the same on Redis 7.0"},
		{name: "gateway, DynamoDB", report: "gateway-dynalite", note: "the same on dynalite 4.0.0, which speaks DynamoDB's protocol"},
		{name: "middleware", start: ours, note: "`httpkey` on SQLite; restarted with a new store on the same file; for the outage no step reaches the store"},
		{name: "Fiber", start: fiberMiddleware, note: "the middleware `idempotency` of [Fiber](https://github.com/gofiber/fiber) 3.1.0 as it is by default: the header `X-Idempotency-Key`, UUIDs, answers in memory. Behind authentication; the handler returns failures as errors, which Fiber does not store"},
	}
	all = append(all, restateColumn...)
	return append(all,
		recipe("recipe 0", seed000, "“Idempotency keys done right: the schema, the race, and the zombie problem”: a row that is inserted, claimed and completed. It has statements and no code: the handler is ours. The sweeper's 5 minutes are 3 seconds here. The recipe says nothing about requests without a key, which run, and nothing about which failures are stored as `failed`: all are, and a 5xx that is kept counts as kept by design"),
		recipe("recipe 1", seed001, "the idempotency keys of the Secure Patterns: reservation, business write and answer in one transaction, by tenant and with a canonical fingerprint. It has statements and words, and no code: the handler is ours. Numbers are compared as they are written"),
		column{name: "recipe 2", start: seed002, note: "“Idempotency Key API Boundaries”: TypeScript with keys in memory, a fingerprint of chosen members and a pessimistic policy for failures. Its types were removed, and it got a server around it"},
		recipe("recipe 3", seed003, "“Idempotency Key Patterns”, after Brandur Leach: a lock in the row and recovery points. It has statements and no code: the handler is ours. Two repairs: a retry that only reads gives its lock back (otherwise the next one is told 409 for 90 seconds), and a failed phase does so too. The 90 seconds of a lock are 3 here. The sale is the charge at a provider, in a phase of its own"),
		recipe("recipe 4", seed004, "“Idempotency Patterns: Building Retry-Safe Distributed Systems”: Go middleware. Two repairs without which no request succeeds: it scans three of the four columns that it asks for, and takes a new row for one in progress. A third: the hashes are compared, as its text says. The reaper's 60 seconds are 3 here"),
	)
}

func recipe(name string, handler func(t *testing.T, s *shop) http.Handler, note string) column {
	return column{name: name, note: note, start: func(t *testing.T, s *shop) *conform.Options {
		o := s.overNetwork(s.verified(serve(t, handler(t, s))))
		if name == "recipe 0" {
			o.Profile = keepsFailures()
		}
		return o
	}}
}

// keepsFailures is the profile of an API that stores failures by design.
func keepsFailures() *conform.Profile {
	p := *conform.IETF
	p.KeepsFailures = true
	return &p
}

// ours is httpkey over SQLite.
func ours(t *testing.T, s *shop) *conform.Options {
	file := filepath.Join(t.TempDir(), "keys.db")
	var mu sync.Mutex
	var current http.Handler
	var opened *sqlitestore.Store
	var faults *faultstore.Store
	start := func() {
		mu.Lock()
		defer mu.Unlock()
		if opened != nil {
			must(t, opened.Close())
		}
		var err error
		opened, err = sqlitestore.Open(t.Context(), file, nil)
		must(t, err)
		faults = faultstore.New(opened)
		engine, err := retrysafe.New(faults, nil)
		must(t, err)
		guard, err := httpkey.New(engine, func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }, &httpkey.Options{Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		current = guard.Handler(s.handler())
	}
	start()
	t.Cleanup(func() { must(t, opened.Close()) })
	o := s.verified(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := current
		mu.Unlock()
		h.ServeHTTP(w, r)
	})))
	o.Restart = func(context.Context) error { start(); return nil }
	o.StoreDown = func(context.Context) error { faults.Plan(faultstore.FailAll(faultstore.LoseRequest)); return nil }
	o.StoreUp = func(context.Context) error { faults.Plan(nil); return nil }
	return o
}

// fiberMiddleware is Fiber's own middleware.
func fiberMiddleware(t *testing.T, s *shop) *conform.Options {
	address := porthold.Lent(t)
	start := func() *fiber.App {
		app := fiber.New()
		app.Use(func(c fiber.Ctx) error {
			if token := c.Get("Authorization"); token != "Bearer a" && token != "Bearer b" {
				return c.SendStatus(http.StatusUnauthorized)
			}
			return c.Next()
		})
		app.Use(idempotency.New())
		sell := func(c fiber.Ctx) error {
			r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, c.Path(), nil)
			r.Header.Set("Idempotency-Key", c.Get("X-Idempotency-Key"))
			r.Header.Set("X-Test", c.Get("X-Test"))
			a, died := s.survives(r, c.Body())
			if died {
				_ = c.RequestCtx().Conn().Close()
				return fiber.ErrInternalServerError // as its own middleware recover has it
			}
			if a.status >= 400 {
				return fiber.NewError(a.status, string(a.body))
			}
			for name, values := range a.header {
				c.Set(name, values[0])
			}
			return c.Status(a.status).Send(a.body)
		}
		app.Post("/sales", sell)
		app.Post("/transfers", sell)
		go func() { _ = app.Listen(address, fiber.ListenConfig{DisableStartupMessage: true}) }()
		await(t, address)
		return app
	}
	app := start()
	t.Cleanup(func() { _ = app.Shutdown() })
	o := s.verified("http://" + address)
	profile := *conform.IETF
	profile.Header, profile.UUID, profile.Opaque, profile.MaxKey = "X-Idempotency-Key", true, true, 36
	o.Profile = &profile
	o.Restart = func(context.Context) error {
		if err := app.Shutdown(); err != nil {
			return err
		}
		app = start()
		return nil
	}
	return o
}

// survives sells, and tells whether the handler died.
func (s *shop) survives(r *http.Request, body []byte) (a answer, died bool) {
	defer func() { died = recover() != nil }()
	return s.sell(context.Background(), s.books, r, body), false
}

// seed002 is a program of its own.
func seed002(t *testing.T, s *shop) *conform.Options {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		must(t, s.books.QueryRowContext(r.Context(), `INSERT INTO sales (key) VALUES ($1) RETURNING number`, r.URL.Query().Get("key")).Scan(&n))
		s.announce(n)
		fmt.Fprintf(w, `{"paymentId": "sale_%06d"}`, n)
	}))
	t.Cleanup(provider.Close)
	address := porthold.Lent(t)
	_, port, _ := strings.Cut(address, ":")
	var server *exec.Cmd
	start := func() {
		server = exec.CommandContext(context.WithoutCancel(t.Context()), "node", filepath.Join("seed002", "server.mjs"), port, provider.URL)
		server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		must(t, server.Start())
		await(t, address)
	}
	stop := func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	start()
	t.Cleanup(func() { stop() })
	o := s.verified("http://" + address)
	o.Request.Body = []byte(`{"customerId": "cus-1", "amountCents": 12000, "currency": "KRW"}`)
	o.Restart = func(context.Context) error { stop(); start(); return nil }
	return o
}

// await waits until a server takes connections.
func await(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		res, err := http.Get("http://" + address + "/")
		if err == nil {
			_ = res.Body.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// Each API of the matrix can be verified. With -matrix all checks run, and the matrix is
// written.
func TestMatrix(t *testing.T) {
	t.Parallel()
	all := columns()
	results := make([]*conform.Report, len(all))
	t.Run("columns", func(t *testing.T) {
		for i, c := range all {
			if c.start == nil {
				if *matrix != "" {
					results[i] = readReport(t, filepath.Join(*reports, c.report+".json"))
				}
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				o := c.start(t, newShop(t))
				if *matrix == "" {
					o.Only = []string{"replay/effect"}
				}
				r, err := conform.Run(t.Context(), o)
				must(t, err)
				results[i] = r
				for _, result := range r.Results {
					if id := result.Check; id == "base/answer" || id == "base/effects" || id == "replay/effect" {
						if result.Verdict != "holds" {
							t.Errorf("%s: %s: %s\n%+v", id, result.Verdict, result.Why, result.Exchanges)
						}
					}
				}
			})
		}
	})
	if *matrix == "" || t.Failed() {
		return
	}
	must(t, os.WriteFile(*matrix, []byte(page(all, results)), 0o644))
}

func readReport(t *testing.T, file string) *conform.Report {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	r := new(conform.Report)
	must(t, json.Unmarshal(data, r))
	return r
}

var signs = map[string]string{
	"holds": "✓", "violated": "✗", "not optimal": "~", "observation": "i", "not supported": "–", "not tested": "–",
	"dependency failed": "↑", "set-up failed": "?",
}

// page returns the text of docs/matrix.md.
func page(all []column, results []*conform.Report) string {
	var b strings.Builder
	b.WriteString(`# The matrix

[The verifier](verify.md) on our own gateway and middleware, and on other implementations, check by check. It is a real
run, written by ` + "`make matrix`" + `. All APIs sell the same thing, with the same ways to be slow, to fail and to die, behind the same
authentication; effects are counted in a table. The profile is the IETF draft's, with the header and the keys that an API
demands. An implementation that promises less than the draft is not wrong by that: the matrix shows what a client may
rely on. The recipes are those that this project began with, as published, and changed only where they would not run.

`)
	b.WriteString("## Columns\n\n| | API | what it is, and what was changed |\n|---|---|---|\n")
	for i, c := range all {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", i+1, c.name, c.note)
	}
	b.WriteString(`
## Checks

| sign | the requirement |
|---|---|
| ✓ | holds |
| ✗ | is violated: it is critical or major |
| ~ | is not met, and it is minor |
| i | an observation: the draft leaves it open |
| – | is not supported, or was not tested |
| ↑ | a check that it depends on does not hold |
| ? | could not be tested: its set-up failed |

`)
	b.WriteString("| check |")
	for i := range all {
		fmt.Fprintf(&b, " %d |", i+1)
	}
	b.WriteString("\n|---|" + strings.Repeat(":-:|", len(all)) + "\n")
	for _, check := range conform.Checks() {
		fmt.Fprintf(&b, "| `%s` |", check.Check)
		for _, r := range results {
			fmt.Fprintf(&b, " %s |", signs[verdictOf(r, check.Check).Verdict])
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## What does not hold\n")
	for i, c := range all {
		var lines []string
		for _, result := range results[i].Results {
			if result.Verdict == "violated" || result.Verdict == "not optimal" || result.Verdict == "set-up failed" {
				lines = append(lines, fmt.Sprintf("- `%s` (%s): %s\n", result.Check, result.Severity, result.Why))
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(&b, "\n### %s\n\n%s", c.name, strings.Join(lines, ""))
		}
	}
	return b.String()
}

func verdictOf(r *conform.Report, id string) conform.Result {
	for _, result := range r.Results {
		if result.Check == id {
			return result
		}
	}
	return conform.Result{Verdict: "not tested"}
}
