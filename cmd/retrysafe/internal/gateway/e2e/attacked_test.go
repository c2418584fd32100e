package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// attackedVariable is set in a process that is the service behind an attacked gateway.
const attackedVariable = "RETRYSAFE_E2E_ATTACKED"

// startAttacked starts the service in a process and a session of its own, so that honest
// clients do not wait for the answers that it writes to the hostile one. It returns the
// service's address.
func startAttacked(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), attackedVariable+"=1"), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// beAttacked is the service, if this is its process.
func beAttacked() bool {
	if os.Getenv(attackedVariable) == "" {
		return false
	}
	fmt.Println(httptest.NewServer(http.HandlerFunc(attacked)).URL)
	select {} // until it is killed
}

var large [1_000_000]byte

// attacked is a service with what a hostile tenant likes: large answers and slow ones.
func attacked(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch r.URL.Path {
	case "/large":
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(large[:])
		return
	case "/slow":
		select {
		case <-time.After(5 * time.Second):
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":"pay_1"}`)
}
