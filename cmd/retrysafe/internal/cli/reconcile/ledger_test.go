package reconcile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
