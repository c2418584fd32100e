package listener_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

const childEnv = "RETRYSAFE_FRONT_CHILD"

// runChild serves until standard input ends.
func runChild() int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := listener.New(listener.Options{
		Load: func() (*config.Config, error) { return &config.Config{Listen: "127.0.0.1:0"}, nil },
		Build: func(context.Context, *config.Config) (listener.App, error) {
			return newApp("child", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), nil
		},
		Ready:  func(at listener.Addresses) { fmt.Println(at.Main) },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A head of 10 MB is refused and not kept, however many send one.
func TestHugeHeadsAreRefused(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(strings.TrimSpace(line), "http://")

	before := rss(t, cmd.Process.Pid)
	done := make(chan error)
	const clients = 20
	for range clients {
		c := dial(t, host)
		go func() { done <- sendHugeHead(c) }()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	grown := rss(t, cmd.Process.Pid) - before
	t.Logf("%d heads of 10 MB: the server grew by %d KiB", clients, grown>>10)
	if grown > 32<<20 {
		t.Errorf("%d heads of 10 MB made the server grow by %d MiB", clients, grown>>20)
	}
}

func sendHugeHead(c net.Conn) error {
	go func() {
		filler := []byte(strings.Repeat("a", 1000))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: ")
		for range 10_000 {
			if _, err := c.Write(filler); err != nil {
				return
			}
		}
	}()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		return fmt.Errorf("got %d, want 431", res.StatusCode)
	}
	return nil
}

// rss returns the resident memory of a process, in bytes.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
