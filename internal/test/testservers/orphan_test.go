package testservers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// orphanMaker tells this binary to start servers and to wait for its death.
const orphanMaker = "TESTSERVERS_MAKE_ORPHANS"

// A process that is killed takes its servers along, and the next process that
// needs servers removes what it left on disk.
func TestServersDieWithTheirProcess(t *testing.T) {
	t.Parallel()
	tmp, err := os.MkdirTemp("", "orphans-") //nolint:usetesting // t.TempDir is closed to the servers' user, and long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	maker, said, _ := startOrphanMaker(t, tmp)
	var urls []string
	for len(urls) < 2 && said.Scan() {
		if url, ok := strings.CutPrefix(said.Text(), "up "); ok {
			urls = append(urls, url)
		} else {
			t.Log(said.Text())
		}
	}
	if len(urls) < 2 {
		t.Fatal("the other process has no servers")
	}
	conn := connect(t, urls[1]) // through the pooler, so that each has a client
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := maker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = maker.Wait()
	eventually(t, "the connection is gone", func() bool { return conn.Ping(t.Context()) != nil })
	eventually(t, "no process runs in its directory", func() bool { return len(processesIn(tmp)) == 0 })
	if len(homesIn(tmp)) != 1 {
		t.Fatalf("in %s there is %v, want what the killed process left", tmp, homesIn(tmp))
	}

	left := homesIn(tmp)[0]
	maker, said, finish := startOrphanMaker(t, tmp)
	for said.Scan() && !strings.HasPrefix(said.Text(), "up ") {
		t.Log(said.Text())
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("the next process has not removed what the killed one left")
	}
	if len(homesIn(tmp)) != 1 {
		t.Errorf("in %s there is %v, want one home, that of the living process", tmp, homesIn(tmp))
	}
	finish()
	for said.Scan() {
		t.Log(said.Text())
	}
	if err := maker.Wait(); err != nil {
		t.Error(err)
	}
	if left, servers := homesIn(tmp), processesIn(tmp); len(left)+len(servers) > 0 {
		t.Errorf("after Shutdown there is still %v %v", left, servers)
	}
}

// startOrphanMaker runs this binary as the other process, with servers below tmp.
// finish lets it end in peace.
func startOrphanMaker(t *testing.T, tmp string) (cmd *osexec.Cmd, said *bufio.Scanner, finish func()) {
	t.Helper()
	cmd = osexec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), orphanMaker+"=1", "TMPDIR="+tmp)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out), func() { _ = in.Close() }
}

// makeOrphans is what the other process does. It prints "up" and a URL for each
// server, and errors.
func makeOrphans() {
	ctx := context.Background()
	pg, err := testservers.StartPostgres(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	pool, err := testservers.StartPgBouncer(ctx, pg, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("up", pg.URL("postgres"))
	fmt.Println("up", pool.URL("postgres"))
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := testservers.Shutdown(); err != nil {
		fmt.Println(err)
	}
}

func homesIn(tmp string) []string {
	dirs, _ := filepath.Glob(filepath.Join(tmp, "retrysafe-servers-*"))
	return dirs
}

// processesIn returns the command lines of processes that work below dir.
func processesIn(dir string) (found []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(cwd, dir) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			found = append(found, string(line))
		}
	}
	return found
}
