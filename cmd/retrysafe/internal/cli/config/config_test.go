package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestGenkeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	s := clitest.NewShell(t, "")
	s.Run("config genkeys", path).Exits(0).Says("key 1 encrypts")
	first, err := os.ReadFile(path)
	clitest.Must(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	s.Run("config genkeys", path).Exits(1).Says("--add adds a key").InOneLine()
	s.Run("config genkeys --add", path).Exits(0).Says("key 2 was added and only decrypts")
	clitest.Must(t, os.Chmod(path, 0o640)) // the gateway runs as another user of this group
	s.Run("config genkeys --use 2", path).Exits(0).Says("key 2 encrypts now")
	s.Run("config genkeys --use 7", path).Exits(2).Says("key 7 is to be current").InOneLine()
	second, err := os.ReadFile(path)
	clitest.Must(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 || string(first) == string(second) {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("there is %v, %v", left, err)
	}
}

// An operator sees which requests a route is not about.
func TestValidatePrintsNearMisses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	s := clitest.NewShell(t, "")
	for _, c := range []struct {
		conf string
		want []string
	}{
		{`routes: [{match: "POST /payments/{rest...}", off: true}, {match: "POST /orders/", required: false}, {match: POST /pay}]`, []string{
			"POST /payments/{rest...} unguarded POST /payments/{rest...}",
			"POST /payments guarded the defaults",
			"PATCH /payments/{more} guarded the defaults",
			"PUT /payments/{more} unguarded no route",
			"POST /orders/ guarded if it has a key POST /orders/",
			"POST /orders guarded the defaults",
			"POST /pay guarded POST /pay",
			"POST /pay/ guarded the defaults",
			"POST /pay/{more} guarded the defaults",
			"POST /PAY guarded the defaults",
			"DELETE /pay unguarded no route",
		}},
		{`{defaults: {off: true}, routes: [{match: POST /pay, off: false}, {match: "POST /tree/", off: false, observe: true}, {match: "DELETE /pay", off: false}]}`, []string{
			"POST /pay/ guarded POST /pay",
			"POST /pay/{more} unguarded the defaults",
			"POST /PAY unguarded the defaults",
			"PATCH /pay unguarded the defaults",
			"DELETE /pay guarded DELETE /pay",
			"DELETE /pay/ guarded DELETE /pay",
			"POST /tree observed POST /tree/",
		}},
	} {
		text := "upstream: http://127.0.0.1:9000\ntenant: bearer\n"
		if conf, ok := strings.CutPrefix(c.conf, "{"); ok {
			text = "{upstream: \"http://127.0.0.1:9000\", tenant: bearer, " + conf
		} else {
			text += c.conf
		}
		clitest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		lines := map[string]bool{}
		for line := range strings.Lines(s.Run("config validate", path).Exits(0).Says("REQUEST", "IS", "BY").Out) {
			lines[strings.Join(strings.Fields(line), " ")] = true
		}
		for _, want := range c.want {
			if !lines[want] {
				t.Errorf("%s: there is no line %q in %v", c.conf, want, lines)
			}
		}
	}
}

// Before a start it is said that there is no store yet, and that there is no folder for it.
// Neither makes one.
func TestValidateSaysThatThereIsNoStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.yaml")
	s := clitest.NewShell(t, "")
	write := func(store string) {
		clitest.Must(t, os.WriteFile(path, []byte("upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: '"+store+"'\n"), 0o600))
	}
	for _, store := range []string{"sqlite:" + filepath.Join(dir, "fresh.db"), testservers.Shared(t)} {
		write(store)
		s.Run("config validate --strict", path).Exits(0).Says("good", "note: the store "+store[:strings.Index(store, ":")], "does not exist yet")
	}
	folder := filepath.Join(dir, "none")
	write("sqlite:" + filepath.Join(folder, "fresh.db"))
	s.Run("config validate", path).Exits(0).Says("good", "warning: store: a gateway could not start with it: there is no folder "+folder, "mkdir -p "+folder)
	s.Run("config validate --strict", path).Exits(1).Hides("good")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("there is %v, %v", left, err)
	}
	url, there := clitest.SQLite(t)
	clitest.Must(t, there.Close())
	write(url)
	if out := s.Run("config validate", path).Exits(0); strings.Contains(out.Err, "note: ") {
		t.Errorf("a store that is there: %s", out.Err)
	}
}

// A store that a move has closed is named before a start, with the place of its keys.
func TestValidateSaysThatTheStoreWasMoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, moved := filepath.Join(dir, "gateway.yaml"), "sqlite:"+filepath.Join(dir, "new.db")
	s := clitest.NewShell(t, "")
	for _, first := range []string{"sqlite:" + filepath.Join(dir, "old.db"), testservers.Shared(t)} {
		s.Run("migrate up --store", first).Exits(0)
		s.Run("keys copy --prepare --yes", first, moved).Exits(0)
		clitest.Must(t, os.WriteFile(path, []byte("upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: '"+moved+"'\n"), 0o600))
		s.Run("config validate", path).Exits(0).Says("warning: store: a gateway could not start with it: ", "is being filled from ")
		s.Run("keys copy --yes", first, moved).Exits(0)
		clitest.Must(t, os.WriteFile(path, []byte("upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: '"+first+"'\n"), 0o600))
		s.Run("config validate", path).Exits(0).Says("warning: store: a gateway could not start with it: ", "this store was moved to "+moved)
		s.Run("config validate --strict", path).Exits(1)
		moved = "sqlite:" + filepath.Join(dir, "newer.db")
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write := func(text string) { clitest.Must(t, os.WriteFile(path, []byte(text), 0o600)) }
	s := clitest.NewShell(t, "")
	write("upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: postgres://app:hunter2@db/app\nroutes:\n  - {match: POST /payments, on_5xx: store}\n")
	s.Run("config validate", path).Exits(0).Says("good, 1 route besides the defaults")
	s.Run("config print", path).Exits(0).Says("upstream: http://127.0.0.1:9000", "POST /payments").Hides("hunter2")
	s.Run("config print --secrets", path).Exits(0).Says("hunter2")
	write("upstream: http://127.0.0.1:9000\ntenant: none\n")
	s.Run("config validate", path).Exits(0).Says("warning: ", "all callers are one tenant")
	s.Run("config validate --strict", path).Exits(1).Says("warning: ").Hides("good")
	write("upstrem: http://127.0.0.1:9000\ntenant: bearer\nroutes:\n  - {match: POST /payments, on_5xx: sometimes}\n")
	got := s.Run("config validate", path).Exits(2).Says(path+":1:1: ", "upstrem", path+":4:", "routes[0].on_5xx")
	for line := range strings.Lines(got.Err) {
		if !strings.HasPrefix(line, "retrysafe: "+path+":") {
			t.Errorf("a line does not begin with its place: %q", line)
		}
	}
	write("upstream: http://127.0.0.1:9000\ntenant: bearer\nencryption: {keys_file: none.json}\n")
	s.Run("config validate", path).Exits(2).Says("keys")
}
