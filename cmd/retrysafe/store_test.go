package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	pg := testservers.Shared(t)
	for name, url := range map[string]string{
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "keys.db"),
		"postgres": pg,
		"a schema": pg + "&schema=else",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := newShell(t, url)
			if name != "sqlite" {
				here.run("migrate status").exits(1).says("version  0", "pending  0001_", "retrysafe migrate up")
				here.run("keys list").exits(3).says("has no tables of retrysafe")
			}
			here.run("migrate up").exits(0).says("migrated from version 0 to")
			here.run("migrate up").exits(0).says("nothing to do")
			here.run("migrate status").exits(0).says("pending  none", "keys     0").hides("version  0")
			here.run("migrate status --format json").exits(0).says(`"pending":[]`, `"keys":0`)
			here.run("keys list").exits(0).says("no keys")
			here.run("migrate print").exits(0).says("CREATE TABLE")
		})
	}
	s := newShell(t, "")
	s.run("migrate print postgres --schema my").exits(0).says(`"my".retrysafe_keys`)
	s.run("migrate print postgres --reaper").exits(0).says("cron.schedule")
	s.run("migrate print sqlite").exits(0).says("CREATE TABLE retrysafe_keys")
}

func TestNewerStoreIsRefused(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	_, err := s.Store.(*sqlitestore.Store).DB().ExecContext(t.Context(), `INSERT INTO retrysafe_schema (version) VALUES (99)`)
	must(t, err)
	here := newShell(t, url)
	here.run("migrate status").exits(1).says("upgrade the program")
	here.run("migrate up").exits(3).says("upgrade the program").inOneLine()
	here.run("keys list").exits(3).says("upgrade the program").inOneLine()
}

// A schema that was only added to says so, and the programs of the release before go
// on working on it.
func TestNewerStoreThatSaysSoIsWorkedOn(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	_, err := s.Store.(*sqlitestore.Store).DB().ExecContext(t.Context(), `INSERT INTO retrysafe_schema (version, oldest) VALUES (99, 1)`)
	must(t, err)
	here := newShell(t, url)
	here.run("migrate status").exits(0).says("may work on it")
	here.run("migrate up").exits(0).says("nothing to do")
	here.run("keys list").exits(0).says("no keys")
}

// Who looks at a store that is not there does not make one.
func TestLookingMakesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here := newShell(t, "sqlite:"+filepath.Join(dir, "none.db"))
	for _, line := range []string{"keys list", "keys show a b", "keys audit", "keys release a b --why x --yes", "outbox list", "migrate status", "reconcile run", "keys quarantine --dry-run"} {
		here.run(line).exits(3).inOneLine()
	}
	here.run("keys copy --yes", "sqlite:"+filepath.Join(dir, "none.db"), "sqlite:"+filepath.Join(dir, "other.db")).exits(3).inOneLine()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}

// Operators see through the seal with its keys, and without them nothing is shown or
// written.
func TestSealedStores(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	store, keys := sealing(t, s.Store)
	r := put(t, store, dead("tenant-a", "k"))
	bare, here := newShell(t, url), newShell(t, url).with("RETRYSAFE_KEYS_FILE", keys)
	for _, line := range []string{"keys list", "keys show tenant-a k", "keys audit", "keys release tenant-a k --why x --yes", "reconcile run", "keys quarantine --why x --yes"} {
		bare.run(line).exits(2).says("are encrypted; name their keys").inOneLine().hides("tenant-a")
	}
	here.run("keys list").exits(0).says("tenant-a", "unknown, dead")
	bare.run("keys list --keys-file", keys).exits(0).says("tenant-a")
	shown := bare.run("keys show tenant-a k --keys-file", keys).exits(0).says("--keys-file " + keys)
	if !strings.Contains(shown.out, "keys resolve --keys-file") {
		t.Errorf("the command to copy lacks the keys\n%s", shown.out)
	}
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: %q\nencryption: {keys_file: %q}\n", url, keys), 0o600))
	newShell(t, "").run("keys list --config", config).exits(0).says("tenant-a")
	here.run(fmt.Sprintf("keys resolve tenant-a k --status 201 --body paid --why found --yes --revision %d", r.Revision)).exits(0)
	if r := load(t, store, "tenant-a", "k"); r.State != retrysafe.StateCompleted || string(r.Result.Body) != "paid" {
		t.Errorf("it is %s", r.State)
	}
	list, err := s.Store.List(t.Context(), retrysafe.Query{})
	must(t, err)
	for i := range list {
		if len(list[i].KeyText) == 0 || strings.Contains(string(retrysafe.AppendRecord(nil, &list[i])), "found") {
			t.Errorf("there is plain text below: %+v", list[i])
		}
	}

	_, others := sealing(t, s.Store)
	bare.run("keys list --keys-file", others).exits(2).says("are not those of").inOneLine()
	plainURL, plain := sqlite(t)
	put(t, plain.Store, dead("tenant-a", "k"))
	newShell(t, plainURL).run("keys list --keys-file", keys).exits(2).says("are not those of").inOneLine()
	must(t, os.Chmod(keys, 0o644))
	here.run("keys list").exits(0).says("warning: everybody on this machine may read")
	must(t, os.WriteFile(keys, []byte("{}"), 0o600))
	here.run("keys list").exits(2).says("config genkeys").inOneLine()
}

// What is sealed with a key that is missing is shown as far as it can be, and nobody
// acts on it.
func TestUnreadableRecords(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	store, old := sealing(t, s.Store)
	put(t, store, dead("tenant-a", "old"))
	rotated := filepath.Join(t.TempDir(), "keys.json")
	text, err := os.ReadFile(old)
	must(t, err)
	must(t, os.WriteFile(rotated, text, 0o600))
	newShell(t, "").run("config genkeys --add", rotated).exits(0)
	newShell(t, "").run("config genkeys --use 2", rotated).exits(0)
	ring, err := sealed.LoadKeyring(rotated)
	must(t, err)
	newer, err := sealed.New(s.Store, ring)
	must(t, err)
	put(t, newer, dead("tenant-a", "new"))

	here := newShell(t, url).with("RETRYSAFE_KEYS_FILE", old)
	here.run("keys list").exits(0).says("old", "unreadable")
	listed := here.run("keys list --format json").exits(0)
	var handle []string
	for line := range strings.Lines(listed.out) {
		var r struct {
			Scope, Key string
			Unreadable bool
		}
		must(t, json.Unmarshal([]byte(line), &r))
		if r.Unreadable {
			handle = []string{r.Scope, r.Key}
		}
	}
	here.run("keys show", handle...).exits(0).says("It cannot be read", "key 2").hides("What you may do")
	here.run("keys show tenant-a new").exits(0).says("It cannot be read")
	here.run("keys release --why x --yes", handle...).exits(1).says("cannot be read").inOneLine()
	here.run("keys release --why x --yes tenant-a new").exits(1).says("cannot be read").inOneLine()
	here.run("keys quarantine --dry-run").exits(0)
	here.with("RETRYSAFE_KEYS_FILE", rotated).run("keys list").exits(0).says("old", "new").hides("unreadable")
}

func TestGenkeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	s := newShell(t, "")
	s.run("config genkeys", path).exits(0).says("key 1 writes")
	first, err := os.ReadFile(path)
	must(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	s.run("config genkeys", path).exits(1).says("--add adds a key").inOneLine()
	s.run("config genkeys --add", path).exits(0).says("key 2 is there, and reads only")
	s.run("config genkeys --use 2", path).exits(0).says("key 2 writes now")
	s.run("config genkeys --use 7", path).exits(2).says("key 7 is to be current").inOneLine()
	second, err := os.ReadFile(path)
	must(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || string(first) == string(second) {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("there is %v, %v", left, err)
	}
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	everyState(t, s.Store)
	inTx := record("tenant-b", "in tx", retrysafe.StateRetryable)
	inTx.Effects = retrysafe.EffectsInTx
	put(t, s.Store, inTx)
	here := newShell(t, url)
	here.run("keys quarantine --dry-run").exits(0).says("would set aside 6 of 6")
	here.run("keys quarantine --dry-run --spare-in-tx --format json").exits(0).says(`"quarantined":5`)
	here.run("keys quarantine --dry-run --scope tenant-b").exits(0).says("would set aside 2 of 2")
	here.run("keys quarantine --yes").exits(2).says("--why is missing").inOneLine()
	here.run("keys quarantine --why restored").exits(2).says("--yes").inOneLine()
	here.typing("no\n").run("keys quarantine --why restored").exits(1).says("6 keys of 6", "not confirmed")
	here.typing("yes\n").run("keys quarantine --why restored --id night").exits(0).says("set aside 6 of 6", "action night by anna@")
	here.run("keys quarantine --why restored --id night --yes").exits(0).says("this was done before")
	here.run("keys quarantine --why restored --yes --format json").exits(0).says(`"quarantined":0`)
	here.run("keys quarantine --why otherwise --id night --yes").exits(2).says("belongs to another action").inOneLine()
	if r := load(t, s.Store, "tenant-a", "retryable"); r.State != retrysafe.StateUnknown {
		t.Errorf("it is %s", r.State)
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	from, s := sqlite(t)
	everyState(t, s.Store)
	to := testservers.Shared(t)
	here := newShell(t, "")
	line := []string{"keys", "copy", from, to}
	here.runs(append(line, "--dry-run")...).exits(3).says("migrations") // nobody has made tables there, and a look does not
	here.run("migrate up --store", to).exits(0)
	here.runs(append(line, "--dry-run")...).exits(0).says("11 keys could move")
	here.runs(line...).exits(2).says("--yes").inOneLine()
	here.typing("no\n").runs(line...).exits(1).says("closed for good")
	here.run("keys list --store", from).exits(0)
	here.runs(append(line, "--yes", "--format", "json")...).exits(0).says(`"records":11`)
	here.run("keys list --store", to).exits(0).says("unknown, dead")
	here.run("keys list --store", from).exits(3).says("this store was moved to", "point the configuration there").inOneLine()
	here.runs(append(line, "--yes")...).exits(1).says("moved").inOneLine()
	here.run("keys copy --yes", from, from).exits(2).says("both are").inOneLine()
	here.run("keys copy --yes memory:", to).exits(2).inOneLine()
	here.run("keys copy --yes", to, "nonsense").exits(2).inOneLine()
	back := "sqlite:" + filepath.Join(t.TempDir(), "back.db")
	here.run("keys copy --abandon", to, back).exits(0).says("serves on")
	here.run("keys copy --yes", to, back).exits(0).says("11 keys moved", "point every configuration to "+back)
	if got := here.run("keys list --format json --store", back).exits(0); strings.Count(got.out, "\n") != 11 {
		t.Errorf("%s", got.out)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write := func(text string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
	s := newShell(t, "")
	write("upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: postgres://app:hunter2@db/app\nroutes:\n  - {match: POST /payments, on_5xx: store}\n")
	s.run("config validate", path).exits(0).says("good, 1 route beside the defaults")
	s.run("config print", path).exits(0).says("upstream: http://127.0.0.1:9000", "POST /payments").hides("hunter2")
	s.run("config print --secrets", path).exits(0).says("hunter2")
	write("upstream: http://127.0.0.1:9000\ntenant: none\n")
	s.run("config validate", path).exits(0).says("warning: ", "all callers are one tenant")
	s.run("config validate --strict", path).exits(1).says("warning: ").hides("good")
	write("upstrem: http://127.0.0.1:9000\ntenant: bearer\nroutes:\n  - {match: POST /payments, on_5xx: sometimes}\n")
	got := s.run("config validate", path).exits(2).says(path+":1:1: ", "upstrem", path+":4:", "routes[0].on_5xx")
	for line := range strings.Lines(got.err) {
		if !strings.HasPrefix(line, "retrysafe: "+path+":") {
			t.Errorf("a line does not begin with its place: %q", line)
		}
	}
	write("upstream: http://127.0.0.1:9000\ntenant: bearer\nencryption: {keys_file: none.json}\n")
	s.run("config validate", path).exits(2).says("keys")
}
