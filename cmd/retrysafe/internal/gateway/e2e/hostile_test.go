package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// hostileVariable has the gateway's address and the number of connections, in a process
// that is a hostile tenant.
const hostileVariable = "RETRYSAFE_E2E_HOSTILE"

// An attack is a hostile tenant in a process of its own. A real attacker computes on
// machines of its own, so the process gets what the others leave of the processors: it is
// scheduled when they are idle. By a low priority alone each of its threads would still run
// for some milliseconds at a time, and every process that an honest request passes through
// would wait for that.
type attack struct {
	cmd   *exec.Cmd
	sent  atomic.Int64
	ended chan struct{}
}

func startAttack(t *testing.T, g *gateway, connections int) *attack {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "chrt", "--idle", "0", os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", hostileVariable, g.addr, connections, *attackKinds))
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &attack{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				a.sent.Store(n)
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(a.stop)
	return a
}

func (a *attack) stop() {
	_ = a.cmd.Process.Kill()
	<-a.ended
}

// beHostile is the attacking process, if this is one. It writes how many requests it has
// sent.
func beHostile() bool {
	var addr, kinds string
	var connections int
	if _, err := fmt.Sscan(os.Getenv(hostileVariable), &addr, &connections, &kinds); err != nil {
		return false
	}
	// Linux shares the processors between sessions and then within one, so both have a priority.
	_ = os.WriteFile("/proc/self/autogroup", []byte("19"), 0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h := &hostile{addr: addr, ctx: ctx}
	h.pause(hostileDelay)
	h.attack(connections, strings.Split(kinds, ","))
	for ctx.Err() == nil {
		fmt.Println(h.sent.Load())
		h.pause(100 * time.Millisecond)
	}
	h.all.Wait()
	return true
}

// hostile is one tenant with many connections. One that is closed is made anew, but not in
// haste: the attack is on the gateway's limits, not on the processors that it shares with
// the measurement.
type hostile struct {
	addr string
	ctx  context.Context
	all  sync.WaitGroup
	sent atomic.Int64
}

const (
	hostileDelay = time.Second // the honest ones are there before it
	hostilePause = 10 * time.Second
)

// hostileDialer connects from an address of its own. The honest tenants come through a
// trusted proxy.
var hostileDialer = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

// attack starts one goroutine for each connection.
func (h *hostile) attack(connections int, kinds []string) {
	do := map[string]func(n int){
		"announced": h.announced, "slow": h.slow, "large": h.large, "waiting": h.waiting, "idle": h.idle, "streams": h.streams,
	}
	for n := range connections {
		h.all.Go(func() {
			for h.ctx.Err() == nil {
				do[kinds[n%len(kinds)]](n)
				select {
				case <-time.After(hostilePause):
				case <-h.ctx.Done():
				}
			}
		})
	}
}

func (h *hostile) head(path, key string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer hostile\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, key, length)
}

// exchange sends text on a connection of its own, then more, and reads the answer slowly.
func (h *hostile) exchange(text string, more func(io.Writer)) {
	c, err := (&tls.Dialer{NetDialer: hostileDialer, Config: anyCertificate}).DialContext(h.ctx, "tcp", h.addr)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(h.ctx, func() { c.Close() })()
	if _, err := io.WriteString(c, text); err != nil {
		return
	}
	h.sent.Add(1)
	if more != nil {
		more(c)
	}
	in := bufio.NewReaderSize(c, 512)
	buf := make([]byte, 512)
	for {
		if _, err := in.Read(buf); err != nil {
			return
		}
		h.pause(50 * time.Millisecond)
	}
}

func (h *hostile) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}

func (h *hostile) key() string { return "a-hostile-key-" + strconv.FormatInt(h.sent.Load(), 10) }

func (h *hostile) announced(n int) {
	h.exchange(h.head("/payments", fmt.Sprint(h.key(), n), 1_000_000)+"{", nil)
}

func (h *hostile) slow(n int) {
	h.exchange(h.head("/payments", fmt.Sprint(h.key(), n), 1_000_000)+`{"text":"`+strings.Repeat("x", 100_000), func(w io.Writer) {
		for h.ctx.Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 500)); err != nil {
				return
			}
			h.pause(200 * time.Millisecond)
		}
	})
}

func (h *hostile) large(n int) {
	h.exchange(h.head("/large", fmt.Sprint(h.key(), n), 2)+"{}", nil)
}

func (h *hostile) waiting(int) {
	h.exchange(h.head("/slow", "one-key-that-all-wait-for-"+strconv.FormatInt(time.Now().Unix()/10, 10), 2)+"{}", nil)
}

func (h *hostile) idle(int) {
	h.exchange("GET /.retrysafe/livez HTTP/1.1\r\nHost: h\r\n\r\n", nil)
}

// streams opens many streams with announced bodies on one connection of HTTP/2.
func (h *hostile) streams(n int) {
	transport := &http.Transport{DialContext: hostileDialer.DialContext, TLSClientConfig: anyCertificate.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			body, hold := io.Pipe()
			defer context.AfterFunc(h.ctx, func() { hold.Close() })()
			go func() { _, _ = hold.Write([]byte("{")) }()
			r, _ := http.NewRequestWithContext(h.ctx, http.MethodPost, "https://"+h.addr+"/payments", body)
			r.ContentLength = 1_000_000
			r.Header.Set("Authorization", "Bearer hostile")
			r.Header.Set("Idempotency-Key", fmt.Sprintf("%s-of-stream-%d-%d", h.key(), n, i))
			if res, err := transport.RoundTrip(r); err == nil {
				res.Body.Close()
			}
			hold.Close()
			h.sent.Add(1)
		})
	}
	all.Wait()
}
