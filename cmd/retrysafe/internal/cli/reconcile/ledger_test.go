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
	"time"

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
	s.RunArgs("reconcile", "ledger", ours, ours, "--tolerance", "-1h").Exits(2).Says("--tolerance -1h0m0s is negative").InOneLine()
	// A day is that of a time zone, and what the other side may book later is judged with the next one.
	night := file("night.csv", "id\tbooked_at\nearly\t2026-02-28T23:30:00Z\nlate\t2026-03-01T23:30:00Z\n")
	none := file("none.csv", "id\tbooked_at\n")
	for flags, judged := range map[string]string{"": "late", "--time-zone UTC": "late", "--time-zone Europe/Berlin": "early", "--tolerance 2h": "early"} {
		got := s.RunArgs(append([]string{"reconcile", "ledger", night, none, "--comma", `\t`, "--time", "booked_at", "--day", "2026-03-01", "--format", "json"}, strings.Fields(flags)...)...).
			Exits(1).Says(`{"kind":"only_ours","id":"` + judged + `"`)
		if strings.Count(got.Out, `"kind":"only_ours"`) != 1 {
			t.Errorf("%s: %s", flags, got.Out)
		}
	}
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

	token := filepath.Join(t.TempDir(), "token")
	clitest.Must(t, os.WriteFile(token, []byte("a-token\n"), 0o600))
	s.With("RETRYSAFE_LEDGER_TOKEN", "another").RunArgs(args(provider.URL+"/list?day={day}", "--day", "2026-03-01", "--token-file", token)...).Exits(1).Says("only-there")
	clitest.Must(t, os.WriteFile(token, []byte("two words"), 0o600))
	s.RunArgs(args(provider.URL+"/list", "--token-file", token)...).Exits(2).Says("no token has").InOneLine()
	s.RunArgs(args(file, "--max-size", "10")...).Exits(5).Says("too large").InOneLine()
	s.RunArgs(args("http://0.0.0.0:1/list", "--plain-http")...).Exits(5).Says("were not compared")
	s.RunArgs(args(file, "--day", "2026-03-01", "--time-zone", "Europe/Berlin")...).Exits(1).Says("period: 2026-03-01T00:00:00+01:00 to 2026-03-02T00:00:00+01:00")
	s.RunArgs(args(file, "--time-zone", "Europe/Nowhere")...).Exits(2).Says("is not a time zone").InOneLine()
	s.RunArgs(args(file, "--tolerance", "1h")...).Exits(2).Says("--theirs time=COLUMN").InOneLine()
	s.RunArgs(args(file, "--tolerance", "1h", "--theirs", "time=at")...).Exits(1).Says("tolerance: 1h0m0s")
	s.RunArgs(args(file, "--presorted")...).Exits(2).Says("--presorted is for two files").InOneLine()

	derived := filepath.Join(t.TempDir(), "derived.csv")
	clitest.Must(t, os.WriteFile(derived, []byte("id,amount\n"+retrysafe.DownstreamKey("shop", retrysafe.Ref{Scope: "acme", Key: "paid-both"}, "refund")+",12.50\n"), 0o600))
	s.RunArgs(args(derived, "--ours", "id=downstream_key", "--namespace", "shop", "--call", "refund")...).Exits(1).Says("1 the same")
	s.RunArgs(args(derived, "--ours", "id=downstream_key")...).Exits(1).Says("only_theirs", "0 the same")

	// A payment may be dated by its answer.
	clitest.Put(t, store.Store, clitest.Dead("acme", "answered-later"))
	since := time.Now().UTC().Format(time.RFC3339Nano)
	s.Run("keys resolve acme answered-later --status 201 --body '{}' --why x --yes --store", url).Exits(0)
	s.RunArgs(args(file, "--since", since, "--ours", "time=answered")...).Exits(1).Says("answered-later").Hides("paid-here")
	s.RunArgs(args(file, "--since", since)...).Exits(1).Hides("answered-later", "paid-here")
	s.RunArgs(args(file, "--ours", "time=changed")...).Exits(2).Says("none of created, answered").InOneLine()

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
	yesterday := func() string { return time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly) }
	for before := ""; before != yesterday(); { // again, if a day has ended meanwhile
		before = yesterday()
		got := s.RunArgs("reconcile", "ledger", "--config", conf, "--ledger", "bank")
		if before == yesterday() {
			got.Says("ledger bank, " + before)
		}
	}
	s.RunArgs("reconcile", "ledger", "--config", conf, "--ledger", "bank", "--since", "2026-03-01").Exits(1).Says("period: 2026-03-01T00:00:00Z to …")
	s.RunArgs("reconcile", "ledger", "--config", conf, "--ledger", "bank", "--day", "2026-03-01", "--until", "1h").Exits(2).Says("--day is a period of its own").InOneLine()
	for _, flag := range []string{"--id x", "--time x", "--time-layout unix", "--compare x", "--amounts x", "--ours x=y", "--theirs x=y", "--comma ;", "--operation x", "--time-zone UTC", "--tolerance 1h", "--token-file x", "--plain-http", "--max-size 1", "--presorted"} {
		words := strings.Fields(flag)
		s.RunArgs(append([]string{"reconcile", "ledger", "--config", conf, "--ledger", "bank"}, words...)...).Exits(2).Says(words[0] + " is said by the ledger in the configuration").InOneLine()
	}
	s.RunArgs("reconcile", "ledger", "--ledger", "bank").Exits(2).Says("--config is missing")
}
