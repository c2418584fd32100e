package conform

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const maxAnswer = 4 << 20 // bytes of a body that are read

// A message is a request as it is written to a connection.
type message struct {
	method string
	url    *url.URL
	lines  [][2]string // headers, in order; one name may have several lines
	body   []byte
	// cut, if it is not zero, is how many bytes of the body are sent before the
	// connection is closed, though all were promised.
	cut int
	// hangUp, if it is not zero, is how long after the last byte the connection is closed,
	// without reading the answer.
	hangUp time.Duration
	// hidden are the headers that tell callers apart. Reports do not show their values.
	hidden http.Header
}

// head returns the request up to its body.
func (m *message) head() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", m.method, m.url.RequestURI(), m.url.Host)
	for _, l := range m.lines {
		fmt.Fprintf(&b, "%s: %s\r\n", l[0], l[1])
	}
	if len(m.body) > 0 || m.method != http.MethodGet {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(m.body))
	}
	b.WriteString("User-Agent: retrysafe-conform\r\nConnection: close\r\n\r\n")
	return b.Bytes()
}

// An answer is what became of a message.
type answer struct {
	sent   *message
	step   string
	status int
	header http.Header
	body   []byte
	took   time.Duration
	err    error // why there is no answer
}

// ok reports whether the API says that it has done what it was asked for.
func (a *answer) ok() bool { return a.err == nil && a.status >= 200 && a.status < 300 }

// refused reports whether the API says that it will not do it.
func (a *answer) refused() bool { return a.err == nil && a.status >= 400 && a.status < 500 }

// String says what came back, in a few words.
func (a *answer) String() string {
	if a.err != nil {
		return "no answer (" + a.err.Error() + ")"
	}
	return strings.TrimSpace(strconv.Itoa(a.status) + " " + http.StatusText(a.status))
}

// same reports whether two answers say the same, in bytes or as JSON.
func (a *answer) same(b *answer) bool {
	return a.err == nil && b.err == nil && a.status == b.status && sameDocument(a.body, b.body)
}

// A wire sends messages. Each has a connection of its own, so nothing is ever sent again
// behind its back.
type wire struct {
	tls     *tls.Config
	timeout time.Duration
	own     bool
	gap     time.Duration // between two messages
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)

	mu   sync.Mutex
	next time.Time // when the next message may be sent
}

func newWire(s *settings) *wire {
	return &wire{
		tls: s.TLS, timeout: s.Timeout, own: s.Own, gap: time.Duration(float64(time.Second) / s.Rate),
		resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}
}

// pace waits until a message may be sent.
func (w *wire) pace(ctx context.Context) error {
	w.mu.Lock()
	now := time.Now()
	at := w.next
	if at.Before(now) {
		at = now
	}
	w.next = at.Add(w.gap)
	w.mu.Unlock()
	return sleep(ctx, at.Sub(now))
}

// A foreignHostError says that a host is not this machine's or a private network's.
type foreignHostError struct {
	host string
	addr netip.Addr
}

func (e *foreignHostError) Error() string {
	return fmt.Sprintf("%s (%s) is neither on this machine nor in a private network, and the requests change what is there; if it is yours, say so with Options.Own, or --i-own-this", e.host, e.addr)
}

// dial connects to the host of u. The addresses that are checked are the ones that are
// connected to, so that a name cannot lead elsewhere in between.
func (w *wire) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	addrs, err := w.resolve(ctx, u.Hostname())
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if a = a.Unmap(); !w.own && !a.IsLoopback() && !a.IsPrivate() {
			return nil, &foreignHostError{u.Hostname(), a}
		}
	}
	var conn net.Conn
	failed := errors.New("the name has no address")
	for _, a := range addrs {
		if conn, failed = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(a.String(), port)); failed == nil {
			break
		}
	}
	if failed != nil {
		return nil, failed
	}
	if u.Scheme == "http" {
		return conn, nil
	}
	config := w.tls.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = cmp.Or(config.ServerName, u.Hostname())
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the first error says more
		return nil, handshakeError(err)
	}
	return secure, nil
}

// handshakeError adds to the error of a TLS handshake what can be done about it.
func handshakeError(err error) error {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Errorf("the server does not speak TLS, is it a URL of http? %w", err)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("%w; if it is yours, trust its certificate with Options.TLS, or --ca", err)
	}
	return err
}

// reach connects to the host of u and sends nothing.
func (w *wire) reach(ctx context.Context, u *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	conn, err := w.dial(ctx, u)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", u.Host, err)
	}
	_ = conn.Close() // nothing was sent
	return nil
}

// A sending is a message on its way: connected, written, done. Each channel is closed at
// the latest when the next one is.
type sending struct {
	connected chan struct{}
	written   chan struct{}
	done      chan struct{}
	answer    *answer
}

// unsent returns a message that will not be sent, and why.
func unsent(a *answer) *sending {
	done := make(chan struct{})
	close(done)
	return &sending{connected: done, written: done, done: done, answer: a}
}

// start sends a message. If ready is not nil, the message is written when it is closed.
func (w *wire) start(ctx context.Context, m *message, ready <-chan struct{}) *sending {
	s := &sending{connected: make(chan struct{}), written: make(chan struct{}), done: make(chan struct{}), answer: &answer{sent: m}}
	go func() { // until the answer is there, or the time-out
		began := time.Now()
		s.answer.err = w.exchange(ctx, s, ready)
		s.answer.took = time.Since(began)
		for _, c := range []chan struct{}{s.connected, s.written, s.done} {
			closeOnce(c)
		}
	}()
	return s
}

// closeOnce closes a channel that only one goroutine closes, unless that has happened.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// isDone reports whether the answer is there.
func (s *sending) isDone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// wait returns the answer.
func (s *sending) wait() *answer {
	<-s.done
	return s.answer
}

func (w *wire) exchange(ctx context.Context, s *sending, ready <-chan struct{}) error {
	m := s.answer.sent
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	conn, err := w.dial(ctx, m.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // what it had to say is read, or not wanted
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	closeOnce(s.connected)
	if ready != nil {
		select {
		case <-ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	body := m.body
	if m.cut > 0 {
		body = body[:m.cut]
	}
	_, err = conn.Write(slices.Concat(m.head(), body))
	closeOnce(s.written)
	switch {
	case m.cut > 0:
		endEarly(conn)
		return cmp.Or(err, errHungUp)
	case m.hangUp > 0:
		return cmp.Or(err, sleep(ctx, m.hangUp), errHungUp)
	}
	// An API may refuse a request before it has read all of it, so an answer is looked for
	// even if not all could be written.
	if readErr := s.answer.read(bufio.NewReader(conn), m.method); readErr != nil {
		return timedOut(ctx, cmp.Or(err, readErr))
	}
	return nil
}

// endEarly ends a request before its end, and waits until the API has noticed: it answers,
// or closes the connection too. An API that does neither is given two seconds.
func endEarly(conn net.Conn) {
	if c, ok := conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // the connection is closed in any case
		_, _ = io.Copy(io.Discard, conn)                          // what it says to half a request does not matter
	}
}

var errHungUp = errors.New("the connection was closed before the answer")

func timedOut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("none came in time: %w", ctx.Err())
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the API closed the connection")
	}
	return err
}

// read reads the answer, past informational ones.
func (a *answer) read(from *bufio.Reader, method string) error {
	for {
		res, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			return err
		}
		if res.StatusCode < 200 && res.StatusCode != http.StatusSwitchingProtocols {
			_ = res.Body.Close() // it has none
			continue
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		_ = res.Body.Close() // the connection is not used again
		if err != nil {
			return err
		}
		a.status, a.header, a.body = res.StatusCode, res.Header, body
		return nil
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
