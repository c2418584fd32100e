package cli_test

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// hostile is what would command a terminal, a spreadsheet or a reader.
const hostile = "=cmd|' /C calc'!A0\x1b]0;owned\x07\x1b[31m\r\n\u009b31m\u202e\x7f\xff\u200b"

// Whatever text a store holds, nothing of it commands a terminal.
func TestW81_NothingCommandsATerminal(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	r := clitest.Dead(hostile, hostile)
	r.Operation, r.Reason, r.ProviderRef = hostile, hostile, hostile
	r.AddNote(retrysafe.Note{By: hostile, Text: hostile, ID: hostile})
	clitest.Put(t, s.Store, r)
	done := clitest.Record(hostile, hostile+"2", retrysafe.StateCompleted)
	done.Result = &retrysafe.Result{Status: 200, Header: map[string][]string{"X-" + hostile: {hostile}}, Body: []byte(hostile)}
	clitest.Put(t, s.Store, done)
	clitest.FailedMessages(t, s, hostile)
	here := clitest.NewShell(t, url)
	var all []*clitest.Output
	for _, format := range []string{"table", "json", "csv"} {
		all = append(all,
			here.Run("keys list --long --format "+format),
			here.Run("keys list --hash --format "+format),
			here.Run("outbox list --long --format "+format),
			here.Run("outbox list --failing --format "+format))
	}
	named := fmt.Sprintf("%q", hostile)
	for _, format := range []string{"text", "json"} {
		all = append(all,
			here.RunArgs("keys", "show", "--body", "--format", format, hostile, hostile),
			here.RunArgs("keys", "show", "--body", "--format", format, named, fmt.Sprintf("%q", hostile+"2")),
			here.Run("outbox show 1 --body --format "+format),
			here.Run("outbox show 2 --body --format "+format),
			here.RunArgs("keys", "redrive", "--format", format, "--why", "twice "+format, hostile, hostile),
			here.RunArgs("keys", "resolve", "--format", format, "--status", "200", "--why", "x", "--yes", "--revision", "1", hostile, hostile))
	}
	all = append(all,
		here.RunArgs("keys", "show", hostile, "other"+hostile),
		here.RunArgs("keys", "list", "--scope", hostile),
		here.RunArgs("keys", "list", "--state", hostile),
		here.RunArgs("keys", "list", "--store", "sqlite:"+hostile),
		here.RunArgs("keys", "list", "--store", hostile),
		here.RunArgs("keys", hostile),
		here.RunArgs("keys", "release", "--why", hostile, "--yes", hostile, hostile),
		here.RunArgs("keys", "hash", hostile),
		here.Typing("no\n").RunArgs("keys", "release", "--why", "x", hostile, hostile),
		here.RunArgs("keys", "audit", "--long"), here.RunArgs("keys", "audit", "--format", "json"), here.RunArgs("keys", "audit", "--format", "csv"),
		here.RunArgs("config", "validate", hostile), here.RunArgs("config", "genkeys", "none/"+hostile))
	for _, p := range all {
		for _, c := range p.Out + p.Err {
			if c != '\n' && (c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u202e' || c == '\u200b' || c == '\ufffd') {
				t.Errorf("retrysafe %q prints %U\nstdout: %q\nstderr: %q", p.Line, c, p.Out, p.Err)
				break
			}
		}
	}
	// What is shown names the key: it can be given so.
	got := here.RunArgs("keys", "show", named, named).Exits(0)
	if strings.Contains(got.Out, "owned\a") || !strings.Contains(got.Out, `\x1b]0;owned\a`) {
		t.Errorf("the key is shown as %q", got.Out)
	}
	rows, err := csv.NewReader(strings.NewReader(here.Run("keys list --long --format csv").Exits(0).Out)).ReadAll()
	clitest.Must(t, err)
	for _, row := range rows {
		for _, cell := range row {
			if cell != "-" && strings.ContainsAny(cell[:min(1, len(cell))], "=+-@\t\r") {
				t.Errorf("a cell is a formula: %q", cell)
			}
		}
	}
}
