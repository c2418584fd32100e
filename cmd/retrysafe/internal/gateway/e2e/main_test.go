// Package e2e_test holds the gateway's promises as its users see them: the built
// binary, real services before and behind it, real stores, kill -9.
package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var scratch string // a folder for the binary

func TestMain(m *testing.M) {
	if beHostile() || beAttacked() {
		return
	}
	var err error
	if scratch, err = os.MkdirTemp("", "retrysafe-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer os.RemoveAll(scratch)
	testservers.Main(m)
}

// binary builds the command once.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "retrysafe")
	build := exec.Command("go", "build", "-o", path, "github.com/retrysafe/retrysafe/cmd/retrysafe")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func built(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A gateway is a process of the command. It can be killed and started again, at the
// same address over the same store.
type gateway struct {
	t    testing.TB
	addr string
	url  string
	conf string
	// flags are on the command line, besides the configuration.
	flags []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	log   *lockedBuffer
}

// newGateway starts a gateway with a configuration, in which LISTEN stands for its
// address.
func newGateway(t testing.TB, conf string) *gateway {
	t.Helper()
	g := &gateway{t: t, addr: porthold.Lent(t), conf: filepath.Join(t.TempDir(), "retrysafe.yaml"), log: new(lockedBuffer)}
	g.url = "http://" + g.addr
	if strings.Contains(conf, "\ntls:") {
		g.url = "https://" + g.addr
	}
	if err := os.WriteFile(g.conf, []byte("listen: "+g.addr+"\n"+conf), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	t.Cleanup(g.kill)
	return g
}

// start starts the process and waits until it is ready and has said with what settings.
func (g *gateway) start() {
	g.t.Helper()
	const announcement = "retrysafe: gateway on " // the rest is in the same write
	announced := strings.Count(g.log.String(), announcement)
	cmd := exec.CommandContext(context.WithoutCancel(g.t.Context()), built(g.t), append([]string{"gateway", "--config", g.conf}, g.flags...)...)
	cmd.Stdout, cmd.Stderr = g.log, g.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	ended := make(chan struct{})
	g.mu.Lock()
	g.cmd, g.ended = cmd, ended
	g.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	for {
		if g.ready() && strings.Count(g.log.String(), announcement) > announced {
			return
		}
		select {
		case <-ended:
			g.t.Fatalf("the gateway ended: %v\n%s", cmd.ProcessState, g.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// logs waits until the log has these texts: what a process has printed reaches the
// buffer a moment later.
func (g *gateway) logs(texts ...string) {
	g.t.Helper()
	defer func() {
		if g.t.Failed() {
			g.t.Logf("the log has\n%s", g.log)
		}
	}()
	for _, text := range texts {
		eventually(g.t, fmt.Sprintf("the log has %q", text), func() bool { return strings.Contains(g.log.String(), text) })
	}
}

// ready reports whether it takes requests.
func (g *gateway) ready() bool {
	answer, err := client.Get(g.url + "/.retrysafe/readyz")
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// kill ends it with -9.
func (g *gateway) kill() { g.end(syscall.SIGKILL) }

// end signals the process and waits for its end.
func (g *gateway) end(signal os.Signal) *os.ProcessState {
	g.mu.Lock()
	cmd, ended := g.cmd, g.ended
	g.mu.Unlock()
	_ = cmd.Process.Signal(signal)
	<-ended
	return cmd.ProcessState
}

func (g *gateway) pid() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cmd.Process.Pid
}

// post sends a POST with a key. The error is that of the connection.
func (g *gateway) post(ctx context.Context, path, key, body string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	r.Header.Set("Authorization", "Bearer me")
	r.Header.Set("Content-Type", "application/json")
	return send(r)
}

// An answer is what a client saw.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) code() string {
	_, rest, _ := strings.Cut(a.body, `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

// client has connections enough for every test here.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, TLSClientConfig: anyCertificate}}

// anyCertificate believes every server.
var anyCertificate = &tls.Config{InsecureSkipVerify: true}

func send(r *http.Request) (answer, error) {
	got, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	return answer{got.StatusCode, got.Header, string(body)}, err
}

// eventually waits for what must come.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
