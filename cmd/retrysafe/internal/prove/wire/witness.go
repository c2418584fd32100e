package wire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A witness is a service that reads strictly, answers everything with 200, and knows
// what may reach it: what a strict reader has found in the bytes that clients sent,
// once each.
type witness struct {
	service
	result *prove.Result
	seed   uint64

	mu      sync.Mutex
	allowed map[[sha256.Size]byte]int
	arrived int
}

// testify starts a witness.
func testify(ctx context.Context, r *prove.Result, seed uint64) (*witness, error) {
	w := &witness{result: r, seed: seed, allowed: map[[sha256.Size]byte]int{}}
	if err := w.listen(ctx, w.serve); err != nil {
		return nil, err
	}
	w.url = "http://" + w.l.Addr().String()
	return w, nil
}

// Routes where what arrives differs from what was sent, or cannot be compared: behind
// decoded, bodies are not those that came; behind wild, frames were changed at random.
const (
	decoded = "/decoded/"
	wild    = "/wild/"
)

// same is what a message is recognised by. Proxies may write a target in another way.
func (m *message) same() (sum [sha256.Size]byte, ok bool) {
	u, err := url.ParseRequestURI(m.target)
	if err != nil {
		return sum, false
	}
	body := m.body
	if strings.Contains(u.Path, decoded) {
		body = nil
	}
	path := u.Path
	if path == "" {
		path = "/"
	}
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", m.method, path, u.RawQuery, body)), true
}

// allow lets a message reach the service once more.
func (w *witness) allow(m *message) {
	if sum, ok := m.same(); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.allowed[sum]++
	}
}

// arrive judges a message that has reached the service.
func (w *witness) arrive(m *message, raw []byte) {
	sum, ok := m.same()
	w.mu.Lock()
	w.arrived++
	left, known := w.allowed[sum]
	if left > 0 {
		w.allowed[sum]--
	}
	w.mu.Unlock()
	if ok && left > 0 || strings.HasPrefix(m.target, wild) {
		return
	}
	what := "a request was passed on that a strict reader does not find in what was sent"
	if ok && known {
		what = "a request was passed on more often than it was sent"
	}
	w.result.Violate(prove.Violation{Invariant: "S8", What: fmt.Sprintf("%s: %s", what, quoted(raw)), Seed: w.seed})
}

func (w *witness) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.arrived
}

const fine = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n"

func (w *witness) serve(c net.Conn) {
	var buf bytes.Buffer
	piece := make([]byte, 32<<10)
	for {
		m, n, err := nextMessage(buf.Bytes())
		switch {
		case err == nil:
			w.arrive(&m, buf.Bytes()[:n])
			text := fine
			if m.method != "HEAD" {
				text += `{"ok":true}`
			}
			buf.Next(n)
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
			continue
		case !errors.Is(err, errCut):
			w.result.Violate(prove.Violation{Invariant: "S8", What: fmt.Sprintf("a forwarded request cannot be parsed: %v: %s", err, quoted(buf.Bytes())), Seed: w.seed})
			return
		}
		if expectant(buf.Bytes()) {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		got, err := c.Read(piece)
		buf.Write(piece[:got])
		if err != nil {
			return
		}
	}
}

// mostQuoted bounds what is shown of bytes.
const mostQuoted = 1500

func quoted(b []byte) string {
	if len(b) > mostQuoted {
		return fmt.Sprintf("%q… (%d bytes)", b[:mostQuoted], len(b))
	}
	return fmt.Sprintf("%q", b)
}
