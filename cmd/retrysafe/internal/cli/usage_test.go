package cli_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// What is wrong with a command line is said in one line, with what to do about it.
func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	here := clitest.NewShell(t, "")
	notThere := "sqlite:" + filepath.Join(t.TempDir(), "none.db")
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	t.Cleanup(func() { _ = listening.Close() })
	taken := listening.Addr().String()
	empty := filepath.Join(t.TempDir(), "empty.db")
	clitest.Must(t, os.WriteFile(empty, nil, 0o600))
	text := filepath.Join(t.TempDir(), "notes.txt")
	clitest.Must(t, os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600))
	dangling := filepath.Join(t.TempDir(), "gw.yaml")
	clitest.Must(t, os.WriteFile(dangling, []byte("upstream: http://127.0.0.1:9000\ntenant: bearer\nadmin: {listen: 127.0.0.1:8081, token_file: /none-such}\n"), 0o600))
	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"nonsense", 2, `there is no command "nonsense" in retrysafe; see retrysafe --help`},
		{"demmo", 2, "did you mean retrysafe demo?"},
		{"keys lst", 2, "did you mean retrysafe keys list?"},
		{"keys list --nonsense", 2, "unknown flag: --nonsense; see retrysafe keys list --help"},
		{"config validate --config gateway.yaml", 2, "unknown flag: --config; the file is an argument here: retrysafe config validate FILE"},
		{"config check gateway.yaml", 2, "did you mean retrysafe config validate?"},
		{"config print --config=gateway.yaml", 2, "retrysafe config print FILE"},
		{"config validate --nonsense", 2, "unknown flag: --nonsense; see retrysafe config validate --help"},
		{"keys list tenant-a", 2, `"tenant-a" is one argument too many`},
		{"keys show", 2, "KEY is missing"},
		{"keys show a b c", 2, `"c" is one argument too many`},
		{"keys show a b --scope c --store " + notThere, 3, "no such file"},
		{"keys audit tenant-a", 2, "KEY is missing"},
		{"keys list", 2, "no store is named"},
		{"keys list --store keys.db", 2, "did you mean sqlite:keys.db?"},
		{"keys list --store ./x.db", 2, "did you mean sqlite:./x.db?"},
		{"keys list --store 'file:x.db'", 2, "did you mean sqlite:x.db?"},
		{"keys list --store 'sqlite3:x.db'", 2, "did you mean sqlite:x.db?"},
		{"keys list --store db.internal:5432/app", 2, "did you mean postgres://user:password@db.internal:5432/app?"},
		{"keys list --store app:hunter2@db/app", 2, "did you mean postgres://user:password@host/database?"},
		{"keys list --store pg://app:hunter2@db/app", 2, "did you mean postgres://user:password@host/database?"},
		{"keys list --store mysql://x", 2, "without a database"},
		{"keys list --store nonsense", 2, "sqlite:FILE"},
		{"keys list --store memory:", 2, "exists in its own process only"},
		{"keys list --store postgres://u:hunter2@h:x/db", 2, "PostgreSQL URL cannot be read"},
		{"keys list --store " + notThere, 3, "retrysafe migrate up --store " + notThere},
		{"keys list --store sqlite:" + empty, 3, "has no tables of retrysafe; create them with: retrysafe migrate up"},
		{"keys list --store sqlite:" + text, 3, "no SQLite database"},
		{"keys list --store postgres://127.0.0.1:1/x", 3, "is the server running"},
		{"keys list --config none.yaml", 2, "there is no configuration file none.yaml"},
		{"keys list --format xml --store " + notThere, 2, "it is one of table, json, csv"},
		{"keys list --limit 0 --store " + notThere, 2, "--all lists everything"},
		{"keys list --state gone --store " + notThere, 2, "they are accepted, in_progress"},
		{"keys list --after x --store " + notThere, 2, "not a value that a list prints at its end"},
		{"keys audit --since yesterday", 2, "nor how long ago it was"},
		{"keys audit --limit -1", 2, "not above zero"},
		{"keys resolve tenant-a k --why x", 2, "--status is missing"},
		{"keys resolve tenant-a k --status 201 --body paid", 2, "--why is missing"},
		{"keys resolve tenant-a k --status 201 --why x --header nonsense", 2, "it has no colon"},
		{"keys resolve tenant-a k --status 201 --why x --header 'Set-Cookie: a=b'", 2, "never replayed"},
		{"keys resolve tenant-a k --status 201 --why x --header 'A B: c'", 2, "not the name of a header"},
		{"keys resolve tenant-a k --status 201 --why x --body-file none.json", 2, "none.json"},
		{"keys resolve tenant-a k --status 201 --why x --body a --body-file b", 2, "none of the others can be"},
		{"keys release tenant-a k --why x --store " + notThere, 3, "no such file"},
		{"prove strom", 2, `there is no check "strom"; they are model, sim`},
		{"prove storm --store keys.db", 2, "sqlite:FILE"},
		{"keys release --why x", 2, "KEY is missing, or a filter such as --operation"},
		{"keys release t k --state unknown --why x", 2, "a KEY and filters exclude each other"},
		{"keys release t k --dry-run --why x", 2, "--dry-run is for filters, not for one KEY"},
		{"keys release t k --rate 5 --why x", 2, "--rate is for filters, not for one KEY"},
		{"keys release --state gone --why x", 2, "they are accepted, in_progress"},
		{"keys release --state unknown", 2, "--why is missing"},
		{"keys release --state unknown --why x --yes", 2, "--yes-count N"},
		{"keys release --state unknown --why x --revision 7", 2, "--revision is for one key"},
		{"keys release --upstream-status 7 --why x", 2, "not a status of HTTP"},
		{"keys release --since 1h --until 2h --why x", 2, "is not before --until"},
		{"keys release --state unknown --rate -1 --why x", 2, "negative"},
		{"keys release --state unknown --yes-count -1 --why x", 2, "negative"},
		{"keys resolve --state unknown --why x", 2, "--status is missing"},
		{"keys resolve --state unknown --status 201 --body paid --provider-ref a --why x", 2, "--provider-ref is for one key"},
		{"keys quarantine --operation x --spare-in-tx --why x", 2, "--spare-in-tx is for the whole store"},
		{"keys quarantine --yes-count 3 --why x", 2, "for keys that a filter selects"},
		{"keys list --sort size --store " + notThere, 2, "it is one of none, created, updated, deadline"},
		{"keys list --sort created --all --store " + notThere, 2, "--sort is for the first keys of an order"},
		{"keys list --reverse --store " + notThere, 2, "--reverse is for --sort"},
		{"keys list --older-than 1h --until 1h", 2, "none of the others can be"},
		{"keys tail --until 1h", 2, "--until is not for a command that follows"},
		{"keys tail --every 0s", 2, "not above zero"},
		{"prove storm --output " + filepath.Join(notThere, "x", "y.html"), 2, "no such file"},
		{"outbox show x", 2, "not the ID of a message"},
		{"outbox list --limit 0", 2, "--all lists everything"},
		{"reconcile run --only sleep", 2, "they are sweep, reconcile, reap"},
		{"reconcile run --only reconcile", 2, "--resolver-url names one"},
		{"reconcile run --tries -1", 2, "negative"},
		{"reconcile run --resolver-url nonsense", 2, "not a URL of http or https"},
		{"reconcile run --resolver-url http://resolver/x", 2, "--plain-http trusts the network"},
		{"reconcile run --resolver-url https://u:hunter2@resolver/x", 2, "--resolver-url: it contains a password"},
		{"reconcile run --resolver-url https://resolver/x --resolver-token-file none", 2, "none: no such file"},
		{"reconcile ledger a.csv", 2, "--operation is missing"},
		{"reconcile ledger - -", 2, "only one of the lists"},
		{"reconcile ledger none.csv none.csv", 2, "no such file"},
		{"reconcile ledger a b --comma ab", 2, "not one character"},
		{"reconcile ledger a b --ours amount", 2, "NAME=COLUMN"},
		{"reconcile ledger a b --compare time", 2, "--compare x"},
		{"migrate status", 2, "no store is named"},
		{"migrate status --store " + notThere, 3, "no such file"},
		{"migrate print", 2, "retrysafe migrate print postgres, mysql, or sqlite"},
		{"migrate print oracle", 2, `no schema for "oracle"`},
		{"migrate print sqlite --reaper", 2, "are for PostgreSQL"},
		{"config validate none.yaml", 2, "there is no configuration file none.yaml"},
		{"config validate none.yaml", 2, "docs/configuration.md has a file to begin with"},
		{"config validate " + dangling, 2, "none-such"},
		{"config print none.yaml", 2, "there is no configuration file none.yaml"},
		{"config genkeys none/keys.json", 5, "no such file"},
		{"config genkeys none.json --add", 2, "no such file"},
		{"config genkeys a.json --add --use 2", 2, "none of the others can be"},
		{"demo --nodes 11", 2, "not between 1 and 10"},
		{"demo --store memory:", 2, "shares its transactions"},
		{"demo --store sqlite:/there/is/no/such/folder/demo.db", 5, "no folder"},
		{"demo --node", 5, "not by hand"},
		{"gateway --tenant bearer", 2, "upstream: it is missing"},
		{"gateway --upstream 127.0.0.1:9000 --tenant none", 2, "did you mean http://127.0.0.1:9000?"},
		{"gateway --upstream app:hunter2@localhost:9000 --tenant none", 2, "it is not a URL of a service"},
		{"gateway --upstream http://127.0.0.1:1 --tenant none --listen 127.0.0.1:0 --store " + filepath.Join(t.TempDir(), "x.db"), 2, "did you mean sqlite:/"},
		{"gateway --upstream http://127.0.0.1:1 --tenant none --listen 127.0.0.1:0 --store sqlite:" + filepath.Dir(empty), 3, "is a folder: name a file in it"},
		{"gateway --upstream http://127.0.0.1:1 --tenant none --listen " + taken + " --store " + notThere, 5, "another process listens there: stop it, or choose another address"},
		{"migrate up --store sqlite:/there/is/no/folder/x.db", 3, "mkdir -p /there/is/no/folder"},
		{"gateway --upstream http://127.0.0.1:1 --tenant nonsense", 2, "header:NAME, bearer, jwt:CLAIM, none"},
		{"gateway --upstream http://127.0.0.1:1 --tenant beerer", 2, "did you mean bearer?"},
		{"gateway --upstream http://127.0.0.1:1", 2, "--tenant bearer, a hash of the caller's token"},
		{"gateway --upstream http://127.0.0.1:1 --tenant none --on-5xx x", 2, "by_proof"},
		{"gateway --upstream http://127.0.0.1:1 --tenant none --admin 127.0.0.1:0", 2, "set $RETRYSAFE_ADMIN_TOKEN"},
		{"gateway --upstream http://127.0.0.1:1 --tenant none --listen 127.0.0.1:0 --store postgres://127.0.0.1:1/x", 3, "is the server running"},
		{"version --format xml", 2, "text, json"},
	} {
		here.Run(c.line).Exits(c.code).Says(c.says).InOneLine().Hides("hunter2")
	}
}

// A store's password is in no message, and in no command to copy.
func TestPasswordsAreNotSaid(t *testing.T) {
	t.Parallel()
	s := clitest.NewShell(t, "")
	for _, url := range []string{"postgres://app:hunter2@127.0.0.1:1/x", "postgres://127.0.0.1:1/x?user=app&password=hunter2"} {
		for _, line := range []string{"keys list --store", "migrate status --store", "migrate up --store", "gateway --upstream http://127.0.0.1:1 --tenant none --listen 127.0.0.1:0 --store"} {
			s.Run(line, url).Exits(3).Hides("hunter2")
		}
		s.Run("keys copy --yes", url, url+"&schema=other").Exits(3).Hides("hunter2")
	}
}
