package reconcile_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

func TestLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		clitest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	ours := file("ours.csv", "id,amount,currency,booked_at\nb,12.00,EUR,2026-03-01T10:00:00Z\na,5.00,EUR,2026-03-01T09:00:00Z\nlate,1,EUR,2026-03-02T00:10:00Z\n")
	same := file("same.jsonl", `{"reference": "a", "net": "5", "currency": "EUR", "when": "2026-03-01T09:00:01Z"}
{"reference": "b", "net": "12.0", "currency": "EUR", "when": "2026-03-01T10:00:01Z"}
`)
	theirs := file("theirs.csv", "id;amount;currency\nc;7.00;EUR\na;5.00;USD\nc;7.00;EUR\nlate;1;EUR\n")
	s := clitest.NewShell(t, "")
	s.RunArgs("reconcile", "ledger", ours, same, "--compare", "amount,currency", "--theirs", "id=reference,amount=net,time=when", "--time", "booked_at", "--ours", "time=booked_at",
		"--since", "2026-03-01", "--until", "2026-03-02").Exits(0).Says("1 pending")
	theirsHere := file("theirs2.csv", strings.ReplaceAll("id;amount;currency\nc;7.00;EUR\na;5.00;USD\nc;7.00;EUR\nlate;1;EUR\n", ";", ","))
	s.RunArgs("reconcile", "ledger", ours, theirsHere, "--compare", "amount,currency").Exits(1).Golden("ledger.txt")
	s.RunArgs("reconcile", "ledger", ours, theirsHere, "--compare", "amount,currency", "--format", "json").Exits(1).Golden("ledger.jsonl")
	s.RunArgs("reconcile", "ledger", theirs, theirs, "--comma", ";").Exits(1).Says("duplicate")
	s.RunArgs("reconcile", "ledger", ours, ours, "--presorted").Exits(2).Says("out of order", "line 3")
	s.RunArgs("reconcile", "ledger", ours, ours, "--compare", "price").Exits(2).Says("price")
	s.Piping("id\na\nb\nlate\n").RunArgs("reconcile", "ledger", ours, "-").Exits(0)
}

// Our side comes from the store: what was answered, and what is unknown, listed as such.
func TestLedgerFromTheStore(t *testing.T) {
	t.Parallel()
	url, store := clitest.SQLite(t)
	for _, w := range []retrysafe.Write{
		clitest.Record("acme", "paid-both", retrysafe.StateCompleted), clitest.Record("acme", "paid-here", retrysafe.StateCompleted),
		clitest.Record("acme", "unknown-key", retrysafe.StateUnknown), clitest.Record("acme", "released-key", retrysafe.StateRetryable),
	} {
		if w.Result != nil {
			w.Result.Body = []byte(`{"id": "ch_` + w.Key + `", "amount": 12.5}`)
		}
		clitest.Put(t, store.Store, w)
	}
	dir := t.TempDir()
	list := "id,amount,at\npaid-both,12.50,2026-03-01T10:00:00Z\nonly-there,3,2026-03-01T10:00:00Z\n"
	file := filepath.Join(dir, "theirs.csv")
	clitest.Must(t, os.WriteFile(file, []byte(list), 0o600))
	s := clitest.NewShell(t, "")
	args := func(more ...string) []string {
		return append([]string{"reconcile", "ledger", "--store", url, "--operation", "POST /charges", "--compare", "amount"}, more...)
	}
	for _, theirs := range []string{file, dir} {
		s.RunArgs(args(theirs)...).Exits(1).Says("only_theirs", "only-there", "only_ours", "record=\"acme paid-here\"", "unknown", "unknown-key", "state=unknown", "1 the same").Hides("released-key", "paid-both")
	}
	s.RunArgs(args(file, "--format", "html")...).Exits(1).Says("<!doctype html>", "retrysafe keys show acme unknown-key")
	s.RunArgs(args(file, "--format", "json")...).Exits(1).Says(`{"kind":"ledger"`, `"kind":"unknown","id":"unknown-key"`, `"kind":"summary"`)

	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer a-token" || r.URL.Query().Get("day") != "2026-03-01" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "text/csv")
		_, _ = io.WriteString(w, list)
	}))
	defer provider.Close()
	s.With("RETRYSAFE_LEDGER_TOKEN", "a-token").RunArgs(args(provider.URL+"/list?day={day}", "--day", "2026-03-01", "--theirs", "time=at")...).
		Exits(1).Says("only-there", "period: 2026-03-01T00:00:00Z").Hides("paid-here") // a record of today
	s.RunArgs(args(provider.URL+"/list?day={day}", "--day", "2026-03-01")...).Exits(5).Says("403")

	s.RunArgs("reconcile", "ledger", file, "--store", url).Exits(2).Says("--operation is missing")
	s.RunArgs(args(file, "--ours", "id=provider")...).Exits(2).Says("--ours id=provider", "downstream_key")
	s.RunArgs(args(file, "--ours", "id=provider_ref")...).Exits(1).Says("unidentified")
	s.RunArgs(args("http://bank.example/list")...).Exits(2).Says("not https", "--plain-http")
	s.RunArgs(args(filepath.Join(dir, "none.csv"))...).Exits(2).Says("none.csv")
	s.RunArgs(args("-")...).Exits(2).Says("standard input")
	s.RunArgs(args(file, "--day", "yesterday")...).Exits(2).Says("is not a day such as 2026-03-01")
	s.RunArgs(args(file, "--day", "2026-03-01", "--since", "1h")...).Exits(2).Says("--day is a period of its own")
	s.RunArgs("reconcile", "ledger").Exits(2).Says("THEIRS is missing")

	conf := filepath.Join(dir, "gateway.yaml")
	clitest.Must(t, os.WriteFile(conf, fmt.Appendf(nil, `upstream: http://127.0.0.1:1
tenant: none
store: %s
ledger:
  - { name: bank, operations: [POST /charges], ours: { fields: { amount: /amount } }, theirs: { file: %s, time: at }, amounts: [amount] }
`, url, file), 0o600))
	s.RunArgs("reconcile", "ledger", "--config", conf, "--ledger", "bank", "--day", "2026-03-01").Exits(1).Says("ledger bank, 2026-03-01", "only-there")
	s.RunArgs("reconcile", "ledger", "--config", conf, "--ledger", "bnk").Exits(2).Says(`no ledger "bnk"`, "it has bank")
	s.RunArgs("reconcile", "ledger", "--config", conf, "--ledger", "bank", "--id", "x").Exits(2).Says("--id is said by the ledger in the configuration")
	s.RunArgs("reconcile", "ledger", "--ledger", "bank").Exits(2).Says("--config is missing")
}
