package journal_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/retrysafe/retrysafe/client/journal"
)

// childFile names the journal of a child process, which is this very binary again.
const childFile = "RETRYSAFE_JOURNAL_CHILD"

// runChild fills a journal until the file may not grow any more, and goes on when it may.
func runChild(path string) int {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	j, err := journal.Open(path, nil)
	if err == nil {
		err = syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	low := limit
	low.Cur = 3000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		fmt.Println(err)
		return 1
	}
	n := 0
	for ; err == nil; n++ {
		_, _, err = j.Begin(context.Background(), operation(fmt.Sprint("order-", n)))
	}
	fmt.Println("full:", err)
	n--
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(err)
		return 1
	}
	_, found, err := j.Begin(context.Background(), operation(fmt.Sprint("order-", n)))
	fmt.Println("again:", n, found, err)
	return 0
}

// A disk that is full refuses an operation, leaves nothing of it in the file, and keeps what
// is there; with room again the journal goes on.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childFile+"="+path)
	out, err := cmd.CombinedOutput()
	must(t, err)
	var n int
	if _, err := fmt.Sscanf(string(out[strings.Index(string(out), "again:")+1:]), "gain: %d false <nil>", &n); err != nil || n < 2 || !strings.Contains(string(out), "full: journal ") {
		t.Fatalf("the child prints %s (%v)", out, err)
	}
	j := open(t, path, nil)
	if got := list(t, j); len(got) != n+1 {
		t.Errorf("%d operations are in the journal, want %d", len(got), n+1)
	}
}
