package rawhead_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

const (
	plain   = "GET /good HTTP/1.1\r\nHost: a\r\n\r\n"
	doubled = "GET /bad HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
)

// pair returns both ends of a connection; the server's, below what looks at it,
// says when it is closed.
func pair(t *testing.T, o *rawhead.Options) (net.Conn, *noting, *client) {
	t.Helper()
	l := listen(t)
	defer l.Close()
	c := dial(t, l.Addr().String())
	inner, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	n := &noting{Conn: inner, closed: make(chan struct{})}
	t.Cleanup(func() { n.Close() })
	return rawhead.Conn(n, o), n, c
}

type noting struct {
	net.Conn
	read   atomic.Int64
	once   sync.Once
	closed chan struct{}
}

func (n *noting) Read(p []byte) (int, error) {
	got, err := n.Conn.Read(p)
	n.read.Add(int64(got))
	return got, err
}

func (n *noting) CloseWrite() error { return n.Conn.(*net.TCPConn).CloseWrite() }

func (n *noting) Close() error {
	defer n.once.Do(func() { close(n.closed) })
	return n.Conn.Close()
}

// A refused client that takes no answer holds up its reader for a second. In the bubble
// that takes no time.
func TestRefusalDoesNotWaitForItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, client := net.Pipe()
		defer client.Close()
		s := rawhead.Conn(inner, nil)
		defer inner.Close()
		go io.WriteString(client, doubled)
		start := time.Now()
		if n, err := s.Read(make([]byte, 4096)); n != 0 || !errors.Is(err, rawhead.ErrRefused) {
			t.Errorf("got %d bytes and %v", n, err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the answer was given up after %v", took)
		}
	})
}

// net/http reads one byte ahead while it serves a request. That read must not
// learn of an offence behind the request, and the answer to the offence must not
// overtake the request's own.
func TestW8_RefusalWaitsForTheAnswerBeforeIt(t *testing.T) {
	t.Parallel()
	s, _, c := pair(t, nil)
	c.send(plain + plain + doubled)

	buf := make([]byte, 4096)
	n, err := io.ReadAtLeast(s, buf, 2*len(plain))
	if err != nil || string(buf[:n]) != plain+plain {
		t.Fatalf("read %q, %v, want the first two requests alone", buf[:n], err)
	}
	for range 2 {
		if n, err := s.Read(buf[:1]); n != 0 || err != nil {
			t.Fatalf("the read ahead got %d bytes and %v, want nothing", n, err)
		}
		if _, err := io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		var op *net.OpError
		if n, err := s.Read(buf); n != 0 || !errors.Is(err, rawhead.ErrRefused) || !errors.As(err, &op) || op.Op != "read" {
			t.Fatalf("read %d bytes and %v, want a refusal that net/http does not answer", n, err)
		}
	}
	if _, err := io.WriteString(s, "too late"); err == nil {
		t.Error("something could be written behind the refusal")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	c.wantOK("ok")
	c.wantOK("ok")
	c.wantRefusal(400, "more than one Host")
}

// A head that was passed on in part is refused at the line that offends, also if
// its last byte is read ahead.
func TestW8_OffenceInTheByteReadAhead(t *testing.T) {
	t.Parallel()
	s, _, c := pair(t, nil)
	start, end := doubled[:len(doubled)-3], doubled[len(doubled)-3:]
	c.send(plain + start)
	buf := make([]byte, 4096)
	if n, err := io.ReadAtLeast(s, buf, len(plain)+len(start)); err != nil || string(buf[:n]) != plain+start {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	c.send(end)
	if n, err := s.Read(buf[:1]); n != 0 || err != nil {
		t.Fatalf("the read ahead got %d bytes and %v, want nothing", n, err)
	}
	if _, err := s.Read(buf[:1]); !errors.Is(err, rawhead.ErrRefused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	_ = s.Close()
	c.wantRefusal(400, "more than one Host")
}

// The request that is being served is not cancelled by what comes behind it.
func TestW8_RequestInFlightIsNotDisturbed(t *testing.T) {
	t.Parallel()
	l := listen(t)
	serving, sent := make(chan struct{}), make(chan struct{})
	run(t, rawhead.Listen(l, nil), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving <- struct{}{}
		<-sent
		_, _ = io.WriteString(w, strings.Repeat("a", 10_000))
		_ = http.NewResponseController(w).Flush()
		if err := r.Context().Err(); err != nil {
			t.Errorf("the request was cancelled: %v", err)
		}
		_, _ = io.WriteString(w, "b")
	}))
	c := dial(t, l.Addr().String())
	c.send(plain + plain + doubled)
	for range 2 {
		<-serving
		c.send(smuggled)
		sent <- struct{}{}
		c.wantOK(strings.Repeat("a", 10_000) + "b")
	}
	c.wantRefusal(400, "more than one Host")
}

// An offence in a body that came with its head is one of the whole request.
func TestW8_OffenceInABodyThatCameWithItsHead(t *testing.T) {
	t.Parallel()
	s, _, c := pair(t, nil)
	c.send(chunks("1\r\na\r\n0x0\r\n\r\n"))
	if n, err := s.Read(make([]byte, 4096)); n != 0 || !errors.Is(err, rawhead.ErrRefused) {
		t.Fatalf("read %d bytes and %v, want a refusal alone", n, err)
	}
	_ = s.Close()
	c.wantRefusal(400, "hexadecimal")
}

// A client that is still sending can read why it was refused: what it sends is
// taken until it hangs up.
func TestRefusedClientCanReadItsAnswer(t *testing.T) {
	t.Parallel()
	s, inner, c := pair(t, nil)
	text := doubled + strings.Repeat("a", 10_000)
	c.send(text)
	if _, err := s.Read(make([]byte, 4096)); !errors.Is(err, rawhead.ErrRefused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	_ = s.Close()
	c.wantRefusal(400, "more than one Host")
	c.Close()
	<-inner.closed
	if got := inner.read.Load(); got != int64(len(text)) {
		t.Errorf("%d bytes were taken of %d", got, len(text))
	}
}

// A client that does not hang up is hung up on.
func TestLingeringEnds(t *testing.T) {
	t.Parallel()
	s, inner, c := pair(t, nil)
	c.send(doubled)
	if _, err := s.Read(make([]byte, 4096)); !errors.Is(err, rawhead.ErrRefused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	_ = s.Close()
	c.wantRefusal(400, "more than one Host")
	<-inner.closed

	s, inner, c = pair(t, nil)
	c.send(doubled)
	if _, err := s.Read(make([]byte, 4096)); !errors.Is(err, rawhead.ErrRefused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	_ = s.Close()
	_ = s.Close()
	select {
	case <-inner.closed:
	default:
		t.Error("a second Close did not end the lingering")
	}
}

// A time-out in the middle of a head is the inner connection's, and nothing is
// forgotten over it.
func TestDeadlinesApplyInsideAHead(t *testing.T) {
	t.Parallel()
	s, _, c := pair(t, nil)
	buf := make([]byte, 4096)
	c.send("GET /bad HTTP/1.1\r\nHost: a\r\nHo")
	if _, err := s.Read(buf); err != nil {
		t.Fatal(err)
	}
	_ = s.SetReadDeadline(time.Unix(1, 0))
	if n, err := s.Read(buf); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes and %v, want a time-out", n, err)
	}
	_ = s.SetReadDeadline(time.Time{})
	c.send("st: b\r\n\r\n")
	if _, err := s.Read(buf); !errors.Is(err, rawhead.ErrRefused) {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestConnectionBelowIsInReach(t *testing.T) {
	t.Parallel()
	s, inner, c := pair(t, nil)
	if got := s.(interface{ NetConn() net.Conn }).NetConn(); got != net.Conn(inner) {
		t.Errorf("got %v, want the inner connection", got)
	}
	if err := s.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	c.wantEnd()
	c.send("G")
	if n, err := s.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("reading after CloseWrite: %d, %v", n, err)
	}
	if _, ok := s.(interface{ ConnectionState() tls.ConnectionState }); ok {
		t.Error("a clear-text connection must not look like TLS")
	}
	a, _ := net.Pipe()
	if err := rawhead.Conn(a, nil).(interface{ CloseWrite() error }).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("CloseWrite of a connection without one: %v", err)
	}
}

// On TLS a refusal looks the same, and handlers see the connection's state.
func TestW8_OverTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	l := listen(t)
	run(t, handshaking{l, &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil || !r.TLS.HandshakeComplete || r.URL.Path != "/good" {
				t.Errorf("%s: TLS state is %+v", r.URL.Path, r.TLS)
			}
			_, _ = io.WriteString(w, "ok")
		}))
	trust := certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trust.ServerName = "example.com"
	raw := dial(t, l.Addr().String())
	over := tls.Client(raw.Conn, trust)
	c := &client{t, over, bufio.NewReader(over)}
	c.send(plain)
	c.wantOK("ok")
	c.send(plain + doubled + smuggled)
	c.wantOK("ok")
	c.wantRefusal(400, "more than one Host")
}

type handshaking struct {
	net.Listener
	config *tls.Config
}

func (l handshaking) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	over := tls.Server(c, l.config)
	if err := over.Handshake(); err != nil {
		return nil, err
	}
	return rawhead.Conn(over, nil), nil
}
