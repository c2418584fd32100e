package bench_test

import (
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// oneWay is how long bytes take to a server that is far away, and back from it.
const oneWay = 500 * time.Microsecond

// farBed is a server behind a relay that holds back every byte for half a millisecond, each
// way, and proves that it does.
func farBed(l *lab) *bed {
	l.Helper()
	b := newBed(l)
	near, via := b.create, ""
	b.create = func() (string, func()) {
		at, drop := near()
		u, err := url.Parse(at)
		if err != nil {
			l.Fatal(err)
		}
		if via == "" {
			via = l.relay(u.Port())
		}
		u.Host = via
		return u.String(), drop
	}
	at, drop := b.create()
	defer drop()
	conn := b.connect(at)
	defer conn.Close(l.Context())
	best := time.Hour
	for range 20 {
		began := time.Now()
		if err := conn.Ping(l.Context()); err != nil {
			l.Fatal(err)
		}
		best = min(best, time.Since(began))
	}
	if best < 2*oneWay {
		l.Fatalf("a round trip took %v: the delay is not in effect", best)
	}
	return b
}

// relay starts the relay to a server on this machine and returns its address.
func (l *lab) relay(port string) string {
	l.Helper()
	addr := porthold.Lent(l)
	_, own, err := net.SplitHostPort(addr)
	if err != nil {
		l.Fatal(err)
	}
	cmd := exec.CommandContext(l.Context(), buildRelay(l), own, port, fmt.Sprint(oneWay.Microseconds()))
	return l.start(addr, cmd).addr
}

func buildRelay(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "relay")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-O2", "-Wall", "-o", program, "farnet/relay.c").CombinedOutput(); err != nil {
		t.Fatalf("compile relay.c: %v\n%s", err, out)
	}
	return program
}
