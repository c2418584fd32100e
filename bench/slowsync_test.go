package bench_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// slowBed starts a server whose disk takes a millisecond longer to flush, by a
// shim around the system's calls, and proves that it does.
func slowBed(t testing.TB) *bed {
	t.Helper()
	b := newBed(t, "LD_PRELOAD="+buildSlowSync(t))
	b.commitsSlowly()
	return b
}

// standbyBed starts a server whose commits wait for a standby that takes a millisecond to
// flush them, as one in another zone would to answer, and proves that they do.
func standbyBed(t testing.TB) *bed {
	t.Helper()
	b, server := newServer(t)
	standby, err := server.Standby(t.Context(), &testservers.StandbyOptions{Synchronous: true, Env: []string{"LD_PRELOAD=" + buildSlowSync(t)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standby.Close() })
	b.commitsSlowly()
	return b
}

// commitsSlowly fails the test unless a commit takes a millisecond or more.
func (b *bed) commitsSlowly() {
	t := b.t
	t.Helper()
	url, drop := b.create()
	defer drop()
	b.exec(url, "CREATE TABLE t (n int)")
	conn := b.connect(url)
	defer conn.Close(t.Context())
	best := time.Hour
	for range 20 {
		began := time.Now()
		if _, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(began))
	}
	if best < time.Millisecond {
		t.Fatalf("a commit took %v: the slowed flush is not in effect", best)
	}
}

// buildSlowSync compiles the shim where the server's user can read it.
func buildSlowSync(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "retrysafe-slowsync-") //nolint:usetesting // the folders above t.TempDir are closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(dir, "slowsync.so")
	out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", library, "slowsync/slowsync.c").CombinedOutput()
	if err != nil {
		t.Fatalf("compile slowsync.c: %v\n%s", err, out)
	}
	return library
}
