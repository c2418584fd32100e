package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sealed"
)

const (
	annasToken  = "a-token-of-anna-only"
	readerToken = "a-token-of-a-reader"
)

// An adminSite is a gateway with operators, over a store whose records are encrypted.
type adminSite struct {
	*clitest.Process
	url, socket string
	store       string // flags that name the store
	place       string // its URL
}

// newAdminSite starts a gateway with tokens for anna, with the role act, and for a reader, over a
// store with these records.
func newAdminSite(t *testing.T, keys string, fill func(retrysafe.Store)) *adminSite {
	t.Helper()
	url, opened := clitest.SQLite(t)
	ring, err := sealed.LoadKeyring(keys)
	clitest.Must(t, err)
	s, err := sealed.New(opened.Store, ring)
	clitest.Must(t, err)
	fill(s)
	clitest.FailedMessages(t, opened, "secret payload")
	deliver(t, opened, s)
	dir, err := os.MkdirTemp("", "rs") //nolint:usetesting // the path of a socket must be short
	clitest.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	site := &adminSite{socket: filepath.Join(dir, "admin.sock"), store: "--store " + url + " --keys-file " + keys, place: url}
	file := filepath.Join(dir, "gateway.yaml")
	clitest.Must(t, os.WriteFile(file, fmt.Appendf(nil, `
listen: 127.0.0.1:0
upstream: http://127.0.0.1:9
store: %q
tenant: { from: bearer }
encryption: { keys_file: %s }
janitor: { off: true, tombstone: 1h }
admin:
  listen: 127.0.0.1:0
  socket: %s
  tokens:
    - { name: anna, role: act, token: %s }
    - { name: reader, role: read, token: %s }
`, url, keys, site.socket, annasToken, readerToken), 0o600))
	site.Process = clitest.Start(t, "gateway", "--config", file)
	site.url = site.Word("operators on http")
	site.url = "http" + site.url
	site.Until("operators on unix:")
	return site
}

// deliver leaves the receipt of a message that settled a key, and that of one that settled
// none.
func deliver(t *testing.T, opened *storeurl.Opened, s retrysafe.Store) {
	t.Helper()
	settled := clitest.Load(t, s, "tenant-a", "key-in_progress")
	clitest.Enqueue(t, opened, outbox.Message{Topic: "charges", Key: "downstream-1", Settles: &settled}, outbox.Message{Topic: "mails", Key: "downstream-2"})
	held, err := opened.Outbox.Lease(t.Context(), retrysafe.Owner{9}, time.Minute)
	clitest.Must(t, err)
	due, err := opened.Outbox.Due(t.Context(), held.Shards, 10)
	clitest.Must(t, err)
	acks := make([]outbox.Ack, len(due))
	for i := range due {
		acks[i] = outbox.Ack{ID: due[i].ID, Shard: due[i].Shard, Kind: outbox.AckDelivered, Tries: 1, Keep: time.Hour, Message: &due[i].Message, ProviderRef: "ch_" + due[i].Topic}
	}
	_, err = opened.Outbox.Ack(t.Context(), acks)
	clitest.Must(t, err)
	_, err = opened.Outbox.Lease(t.Context(), retrysafe.Owner{9}, 0)
	clitest.Must(t, err)
}

// varies are parts of outputs that differ between two stores, or from moment to moment.
var varies = regexp.MustCompile(`("age_seconds":|"oldest_dead_seconds":)[\d.e-]+|"identity_sha256":"[0-9a-f]{64}"|the oldest for \d+ (?:s|min)|\b[A-Z2-7]{26}\b`)

// raw is a key that is not text.
const raw = "k\xff\x01"

// fill stores a record in each state, and some that a batch changes.
func fill(t *testing.T) func(retrysafe.Store) {
	return func(s retrysafe.Store) {
		for state := retrysafe.StateAccepted; state.Valid(); state++ {
			clitest.Put(t, s, clitest.Record("tenant-a", "key-"+state.String(), state))
		}
		clitest.Put(t, s, clitest.Dead("tenant-a", "key-dead"))
		for _, key := range []string{"to-resolve", "to-decline", "to-release", raw} {
			clitest.Put(t, s, clitest.Dead("tenant-b", key))
		}
		lapsed := clitest.Record("tenant-b", "lapsed", retrysafe.StateInProgress)
		lapsed.Term = time.Millisecond
		lapsed.Checkpoint = retrysafe.Checkpoint{Phase: "charged", Data: []byte("data of a phase")}
		clitest.Put(t, s, lapsed)
		for i := range 5 {
			many := clitest.Record("tenant-c", fmt.Sprintf("many-%d", i), retrysafe.StateUnknown)
			many.Operation = "POST /many"
			clitest.Put(t, s, many)
		}
		for i := range 2 {
			refused := clitest.Record("tenant-c", fmt.Sprintf("refused-%d", i), retrysafe.StateUnknown)
			refused.Operation = "POST /refused"
			clitest.Put(t, s, refused)
		}
		inTx := clitest.Record("tenant-c", "in-tx", retrysafe.StateRetryable)
		inTx.Effects = retrysafe.EffectsInTx
		clitest.Put(t, s, inTx)
		for _, key := range []string{"to-forget", "to-erase"} {
			clitest.Put(t, s, clitest.Record("tenant-d", key, retrysafe.StateCompleted))
		}
	}
}

// Every command prints the same through the admin API of a gateway as on the store itself,
// and does the same: apart from times, revisions, and how the place is named.
func TestAdminCommandsEqualThoseOnTheStore(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	clitest.NewShell(t, "").Run("config genkeys", keys).Exits(0)
	direct, remote := newAdminSite(t, keys, fill(t)), newAdminSite(t, keys, fill(t))
	sh := clitest.NewShell(t, "").With("RETRYSAFE_ADMIN_TOKEN", annasToken)
	steady := func(o *clitest.Output) string {
		text := fmt.Sprintf("exit code %d\n%s\n%s", o.Code, o.Out, o.Err)
		for _, words := range []string{direct.store, "--admin " + remote.url, "--admin unix:" + remote.socket, direct.place, remote.url, "unix:" + remote.socket} {
			text = strings.ReplaceAll(text, words, "PLACE")
		}
		text = varies.ReplaceAllString(clitest.Steady(text), "VARIES")
		if strings.Contains(o.Line, "--batch") { // entries of one moment have no order
			lines := strings.Split(text, "\n")
			slices.Sort(lines)
			text = strings.Join(lines, "\n")
		}
		return text
	}
	const yes = " --yes --why because"
	for i, line := range []string{
		"keys list", "keys list -o json", "keys list -o csv --long", "keys list --dead --hash", "keys list --sort created --limit 3", "keys list --limit 2",
		"keys list --state unknown --operation 'POST /m*'", "keys list --scope tenant-b --all -o json", "keys list --key-hash " + retrysafe.HashKey("many-1"),
		"keys list --limit 0", "keys groups", "keys groups -o json", "keys groups --tenant tenant-c",
		"keys show tenant-a key-accepted", "keys show tenant-a key-in_progress", "keys show tenant-a key-completed", "keys show tenant-a key-retryable",
		"keys show tenant-a key-unknown --long", "keys show tenant-a key-expired", "keys show tenant-a key-dead -o json", "keys show tenant-b lapsed", "keys show tenant-b lapsed -o json",
		"keys show many-1", "keys show " + retrysafe.HashKey("many-1"), "keys show tenant-a nothing", "keys show nothing", `keys show tenant-b '"k\xff\x01"'`, `keys show tenant-b '"k\xff\x01"' -o json`,
		"keys audit", "keys audit -o json", "keys export tenant-a key-completed",
		"outbox depth", "outbox depth -o json", "outbox list", "outbox list --failing --long", "outbox list -o json", "outbox show 1", "outbox show 2 -o json", "outbox show 99", "outbox receipts", "outbox receipts tenant-a key-completed",
		"keys list --limit 5000 -o csv", "keys audit --since 2038-01-01", "keys quarantine --dry-run --until 2020-01-01", "keys quarantine --dry-run --since 2038-01-01",
		"keys quarantine --dry-run --spare-in-tx", "outbox list --after 1", "outbox receipts --after 3 -o csv", "outbox receipts --provider-ref ch_mails", "outbox receipts tenant-a key-in_progress",

		"keys resolve tenant-b to-resolve --status 201 --header 'content-type: text/plain' --body paid --provider-ref ch_1" + yes, "keys show tenant-b to-resolve",
		"keys resolve tenant-b to-resolve --status 201" + yes, "keys resolve tenant-b to-resolve --status 201 --no-body" + yes, "keys decline tenant-b to-decline --status 402 -o json" + yes, "keys release tenant-b to-release" + yes,
		"keys release tenant-b to-release --revision 1" + yes, "keys redrive tenant-a key-dead" + yes, "keys redrive tenant-a key-completed" + yes, "keys release tenant-a key-in_progress" + yes,
		`keys release tenant-b '"k\xff\x01"'` + yes, "keys forget tenant-d to-forget" + yes, "keys erase tenant-d to-erase" + yes, "keys erase tenant-d nothing" + yes, "keys release tenant-a key-unknown --why because",
		"keys release --operation 'POST /many' --dry-run", "keys release --operation 'POST /many' --dry-run -o json", "keys release --operation 'POST /none' --yes-count 1 --why because",
		"keys release --operation 'POST /many' --yes-count 2 --why because", "keys release --operation 'POST /many' --yes-count 5 --id the-batch --why because",
		"keys release --operation 'POST /many' --yes-count 5 --id the-batch --why because", "keys release --operation 'POST /other' --yes-count 5 --id the-batch --why because",
		"keys decline --operation 'POST /refused' --status 402 --header 'X-A: b' --body no --yes-count 2 --why because", "keys show tenant-c refused-1", "keys audit --before 2020-01-01",
		"keys audit --batch the-batch", "keys release --state completed --yes-count 5 --why because",
		"keys quarantine --dry-run", "keys quarantine --scope tenant-c --dry-run -o json", "keys quarantine --scope tenant-c --id the-quarantine" + yes, "keys quarantine --scope tenant-c --id the-quarantine" + yes,
		"outbox redrive 1" + yes, "outbox redrive 2" + yes, "outbox skip 2" + yes, "outbox drop 2 -o json" + yes, "outbox drop 2 --revision 3" + yes,
		"reconcile run --only sweep", "reconcile run -o json --only sweep", "reconcile run --only nothing", "keys show tenant-b lapsed",
		"keys audit", "keys audit tenant-b to-resolve -o json", "keys audit --by anna --verb release --long", "keys list --long",
	} {
		other := " --admin " + remote.url
		if i%2 == 0 {
			other = " --admin unix:" + remote.socket
		}
		author := ""
		if strings.Contains(line, "--why") {
			author = " --by anna"
		}
		want, got := steady(sh.Run(line+" "+direct.store+author)), steady(sh.Run(line+other))
		if got != want {
			t.Errorf("retrysafe %s\nthrough the gateway:\n%s\non the store:\n%s", line, got, want)
		}
	}

	// What clients sent and got is revealed with an entry in the audit of the gateway.
	for i, line := range []string{"keys show tenant-a key-completed --body", "keys export tenant-a key-accepted --with-bodies", "outbox show 1 --body -o json", "keys show tenant-a key-completed --body -o json"} {
		got := sh.Run(line + " --admin " + remote.url)
		if i == 2 { // redriven above
			got.Exits(1)
			continue
		}
		want := sh.Run(line + " " + direct.store).Exits(0)
		if i != 1 && steady(got) != steady(want) { // the bundles have other notes in their audit
			t.Errorf("retrysafe %s\nthrough the gateway:\n%s\non the store:\n%s", line, steady(got), steady(want))
		}
	}
	sh.Run("keys export tenant-a key-accepted --with-bodies --admin " + remote.url).Exits(0).Says("cmVxdWVzdA==") // "request" in base64
	sh.Run("keys audit --verb reveal --admin "+remote.url).Exits(0).Says("anna", "key-completed", "key-accepted", "retrysafe keys show --body")
	sh.Run("keys audit --verb reveal " + direct.store).Exits(0).Hides("anna")
	for _, secret := range []string{annasToken, readerToken, "key-completed", "to-resolve", "secret payload", "pay_1"} {
		if strings.Contains(remote.Output.String(), secret) {
			t.Errorf("%q is in the log of the gateway", secret)
		}
	}
	if info, err := os.Stat(remote.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v, want that only its owner may connect", info, err)
	}
	remote.Stop(0)
	if _, err := os.Stat(remote.socket); err == nil {
		t.Error("the socket is still there")
	}
}

// What --admin cannot do is refused in one line that says what to do.
func TestAdminRefusals(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	clitest.NewShell(t, "").Run("config genkeys", keys).Exits(0)
	site := newAdminSite(t, keys, func(s retrysafe.Store) {
		fill(t)(s)
		forgotten := clitest.Record("tenant-d", "forgotten", retrysafe.StateCompleted)
		forgotten.Term = 0
		clitest.Put(t, s, forgotten)
	})
	at, sh := " --admin "+site.url, clitest.NewShell(t, "")
	anna, reader := sh.With("RETRYSAFE_ADMIN_TOKEN", annasToken), sh.With("RETRYSAFE_ADMIN_TOKEN", readerToken)
	sh.Run("keys list" + at).Exits(2).InOneLine().Says("RETRYSAFE_ADMIN_TOKEN")
	sh.With("RETRYSAFE_ADMIN_TOKEN", "a-token-that-is-wrong").Run("keys list" + at).Exits(1).InOneLine().Says("refuses")
	reader.Run("keys list" + at).Exits(0).Says("key-completed")
	reader.Run("keys show tenant-a key-completed" + at).Exits(0).Says("hidden").Hides("application/json")
	reader.Run("keys show tenant-a key-unknown"+at).Exits(0).Says("It may have happened", "role act").Hides("retrysafe keys release", "What you may do")
	anna.Run("keys show tenant-a key-unknown"+at).Exits(0).Says("retrysafe keys release", "What you may do")
	reader.Run("outbox show 1" + at).Exits(0).Says("role act").Hides("retrysafe outbox drop")
	reader.Run("keys groups"+at).Exits(0).Says("retrysafe keys list").Hides("retrysafe keys release", "retrysafe reconcile run")
	anna.Run("keys groups" + at).Exits(0).Says("retrysafe keys release")
	// It is refused before a person is asked to confirm it.
	for _, line := range []string{"keys release tenant-b to-release", "keys release --operation 'POST /many'", "keys quarantine", "outbox drop 1"} {
		reader.Run(line+" --why because"+at).Exits(1).InOneLine().Says("role read", "role act").Hides("confirm", "[y/N]")
	}
	reader.Run("keys quarantine --dry-run" + at).Exits(0)
	reader.Run("keys show tenant-a key-completed --body" + at).Exits(1).InOneLine().Says("role").Hides("pay_1")
	reader.Run("keys release tenant-b to-release --yes --why because" + at).Exits(1).InOneLine().Says("role act")
	reader.Run("keys release --operation 'POST /many' --yes-count 9 --why because" + at).Exits(1).InOneLine().Says("role act")
	reader.Run("outbox drop 1 --yes --why because" + at).Exits(1).InOneLine().Says("role act")
	reader.Run("reconcile run" + at).Exits(1).InOneLine().Says("role act")
	// One pass is made by the configuration of the gateway.
	anna.Run("reconcile run --only reconcile"+at).Exits(2).InOneLine().Says("there is no resolver to ask", "reconcile.resolvers")
	anna.Run("reconcile run --only reap" + at).Exits(0).Says("reap       1 expired").Hides("sweep")
	for _, line := range []string{"keys release tenant-b to-release --yes", "keys release --operation 'POST /many' --yes-count 9", "keys quarantine --yes", "outbox drop 1 --yes"} {
		anna.Run(line + " --why because --by bert" + at).Exits(2).InOneLine().Says("leave out --by")
	}
	anna.Run("keys list --store " + site.place + at).Exits(2).InOneLine().Says("exclude each other")
	anna.Run("keys copy a b" + at).Exits(2).InOneLine().Says("needs both databases")
	anna.Run("migrate status" + at).Exits(2).InOneLine().Says("database itself")
	anna.Run("reconcile ledger theirs.csv --operation x" + at).Exits(2).InOneLine().Says("database itself")
	anna.Run("reconcile run --watch" + at).Exits(2).InOneLine().Says("leave out --watch")
	anna.Run("outbox list --window 1h" + at).Exits(2).InOneLine().Says("leave out --window")
	anna.Run("keys list --admin gateway:8081").Exits(2).InOneLine().Says("https://HOST:PORT")
	anna.Run("keys list --admin http://127.0.0.1:9").Exits(3).InOneLine().Says("nothing listens there", "admin.listen")
	anna.Run("keys list --admin unix:/nowhere/admin.sock").Exits(3).InOneLine().Says("there is no socket", "admin.socket")
	anna.Run("keys list --admin https" + strings.TrimPrefix(site.url, "http")).Exits(3).InOneLine().Says("begin it with http://")
	_, clients, _ := strings.Cut(site.Output.String(), "gateway on ")
	anna.Run("keys list --admin "+strings.Fields(clients)[0]).Exits(3).InOneLine().Says("not the admin API", "admin.listen")
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	anna.Run("keys list --admin "+secure.URL).Exits(3).InOneLine().Says("not trusted", "SSL_CERT_FILE")
	slowed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"title": "Too Many Requests", "status": 429, "code": "too-many-wrong-tokens", "detail": "too many wrong tokens came from this address"}`))
	}))
	t.Cleanup(slowed.Close)
	anna.Run("keys list --admin "+slowed.URL).Exits(1).InOneLine().Says("too many wrong tokens", "try again after 7 s")
	anna.Run("keys list --admin unix:admin.sock").Exits(2).InOneLine().Says("unix:/PATH")
	anna.Run("keys list --admin " + site.url + "/api/v1/").Exits(0).Says("key-completed")
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok": true}`))
	}))
	t.Cleanup(service.Close)
	anna.Run("keys list --admin "+service.URL).Exits(3).InOneLine().Says("not the admin API", "admin.listen").Hides("no keys")
	file := filepath.Join(t.TempDir(), "token")
	clitest.Must(t, os.WriteFile(file, []byte(annasToken+"\n"), 0o600))
	sh.Run("keys groups --admin-token-file " + file + at).Exits(0).Says("--admin " + site.url + " --admin-token-file " + file)
	if strings.Contains(site.Output.String(), "a-token-that-is-wrong") {
		t.Error("a wrong token is in the log")
	}
}
