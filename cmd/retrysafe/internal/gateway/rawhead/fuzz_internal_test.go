package rawhead

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// Whatever comes, in whatever pieces: the verdict is the same, and what is let
// through is read by net/http with the same boundaries.
func FuzzSameVerdict(f *testing.F) {
	for i, text := range seeds() {
		hammer.Add(f, []byte(text), uint64(i), i%3 == 0)
	}
	hammer.Fuzz(f, sameVerdict)
}

// The same over streams that are put together from pieces of requests, so that
// many of them are nearly right.
func TestSameVerdictOfNearRequests(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	whole := 0
	for seed := range uint64(1000) {
		data := nearRequests(random)
		sameVerdict(t, data, seed, seed%4 == 0)
		whole += len(follow((*Options)(nil).orDefaults(), data).ends)
	}
	if whole < 1000 {
		t.Errorf("only %d requests were whole; nearly all of this was refused at once", whole)
	}
}

func sameVerdict(t *testing.T, data []byte, seed uint64, tight bool) {
	o := (&Options{Upgrades: seed%2 == 0}).orDefaults()
	if tight {
		o.MaxHead, o.MaxLines = 120, 5
	}
	want := follow(o, data)
	pieces := rand.New(rand.NewPCG(seed, 0))
	for name, piece := range map[string]func() int{
		"whole":   func() int { return 1 << 20 },
		"pieces":  func() int { return 1 + pieces.IntN(40) },
		"mixed":   func() int { return 1 + pieces.IntN(2)*pieces.IntN(4096) },
		"singles": func() int { return 1 },
	} {
		passed, why, answer := pass(t, o, data, piece)
		if why != want.why {
			t.Fatalf("%s: verdict %q, byte by byte it is %q, on %q", name, why, want.why, data)
		}
		if !bytes.HasPrefix(data, passed) || why == "" && len(passed) != len(data) {
			t.Fatalf("%s: %q was let through of %q", name, passed, data)
		}
		if got := follow(o, passed); got.why != "" || !slices.Equal(got.bodies, want.bodies) {
			t.Fatalf("%s: let through are %q, want %q", name, got.bodies, want.bodies)
		}
		if answer != "" && (why == "" || !strings.HasSuffix(answer, "\n") || strings.Count(answer, "HTTP/1.1 4") != 1) {
			t.Fatalf("%s: answered %q to %q", name, answer, why)
		}
		agree(t, name, passed, want)
	}
}

// A reading is what a connection's bytes mean.
type reading struct {
	bodies []string // of the messages that are whole
	ends   []int    // where they end
	why    offence
}

// follow reads byte by byte.
func follow(o *Options, data []byte) (r reading) {
	s := newScanner(o)
	var body []byte
	for i := range data {
		if s.at == inData {
			body = append(body, data[i])
		}
		if _, r.why = s.scan(data[i : i+1]); r.why != "" {
			return r
		}
		if s.between() {
			r.ends = append(r.ends, i+1)
			r.bodies = append(r.bodies, string(body))
			body = nil
		}
	}
	return r
}

// agree holds net/http to want over the bytes that were let through. It may refuse
// more, by the head.
func agree(t *testing.T, name string, passed []byte, want reading) {
	t.Helper()
	all := bytes.NewReader(passed)
	in := bufio.NewReader(all)
	for i := 0; ; i++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		switch {
		case i == len(want.ends) && err != nil:
			return // the last one is not whole
		case i == len(want.ends):
			t.Fatalf("%s: net/http finds one more request, %s %s with %q", name, r.Method, r.RequestURI, body)
		case err != nil:
			t.Fatalf("%s: net/http cannot read body %d: %v", name, i, err)
		case string(body) != want.bodies[i]:
			t.Fatalf("%s: net/http reads body %d as %q, want %q", name, i, body, want.bodies[i])
		}
		if end := len(passed) - all.Len() - in.Buffered(); end != want.ends[i] {
			t.Fatalf("%s: net/http ends message %d at %d, want %d", name, i, end, want.ends[i])
		}
	}
}

// pass sends data through a conn, in pieces on both of its sides, and returns what
// came through, the verdict and what was answered.
func pass(t *testing.T, o *Options, data []byte, piece func() int) (passed []byte, why offence, answer string) {
	t.Helper()
	inner := &script{in: data, piece: piece}
	c := Conn(inner, o)
	buf := make([]byte, 8192)
	var refused refusedError
	for {
		n, err := c.Read(buf[:min(piece(), len(buf))])
		passed = append(passed, buf[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return passed, "", inner.out.String()
		case errors.As(err, &refused):
			return passed, refused.why, inner.out.String()
		case err != nil:
			t.Fatal(err)
		}
	}
}

// A script is a connection whose client has sent all that it sends.
type script struct {
	net.Conn
	in    []byte
	piece func() int
	out   bytes.Buffer
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.piece())], s.in)
	s.in = s.in[n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
