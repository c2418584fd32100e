package listener_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// enough is how long a test waits for what must come.
const enough = 30 * time.Second

const token = "an-admin-token-for-tests"

// An app counts what it is given, and notes whether it is ended in order.
type app struct {
	name    string
	serve   http.HandlerFunc // default: the name
	ready   atomic.Pointer[error]
	served  atomic.Int64
	running atomic.Int64 // requests
	stopped chan struct{}
	runs    func(ctx context.Context) error

	mu      sync.Mutex
	drained int
	wrong   []string
}

func newApp(name string, serve http.HandlerFunc) *app {
	return &app{name: name, serve: serve, stopped: make(chan struct{})}
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.served.Add(1)
	a.running.Add(1)
	defer a.running.Add(-1)
	a.check("a request came after Drain", a.drains() == 0)
	if a.serve != nil {
		a.serve(w, r)
		return
	}
	_, _ = io.WriteString(w, a.name)
}

func (a *app) Run(ctx context.Context) error {
	defer close(a.stopped)
	if a.runs != nil {
		return a.runs(ctx)
	}
	<-ctx.Done()
	return nil
}

func (a *app) Drain(context.Context) error {
	a.check("Drain came while requests ran", a.running.Load() == 0)
	select {
	case <-a.stopped:
	default:
		a.check("Drain came while Run ran", false)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drained++
	return nil
}

func (a *app) Ready() error {
	if err := a.ready.Load(); err != nil {
		return *err
	}
	return nil
}

func (a *app) drains() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drained
}

func (a *app) check(promise string, holds bool) {
	if !holds {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.wrong = append(a.wrong, promise)
	}
}

// A site is a server that runs, and its handles.
type site struct {
	t      *testing.T
	server *listener.Server
	reload chan struct{}
	stop   context.CancelFunc
	log    *journal

	mu     sync.Mutex
	config config.Config
	load   error // what Load fails with
	build  func(*config.Config) (listener.App, error)
	apps   []*app
	at     listener.Addresses
	told   chan struct{} // the addresses are known
	ended  chan struct{}
	err    error // of Run
}

// start runs a server on a free port. The first App serves with h, and so does each
// later one unless build says otherwise.
func start(t *testing.T, h http.HandlerFunc, change ...func(*site, *listener.Options)) *site {
	t.Helper()
	s := &site{t: t, reload: make(chan struct{}), log: new(journal), told: make(chan struct{}, 64), ended: make(chan struct{})}
	s.config.Listen = "127.0.0.1:0"
	s.config.Server.Drain = enough
	s.build = func(*config.Config) (listener.App, error) {
		a := newApp(fmt.Sprintf("app %d", len(s.apps)+1), h)
		s.apps = append(s.apps, a)
		return a, nil
	}
	o := listener.Options{
		Load: func() (*config.Config, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			c := s.config
			return &c, s.load
		},
		Build: func(_ context.Context, c *config.Config) (listener.App, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.build(c)
		},
		Reload: s.reload,
		Ready: func(at listener.Addresses) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.at = at
			s.told <- struct{}{}
		},
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(s, &o)
	}
	var err error
	if s.server, err = listener.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	go func() {
		defer close(s.ended)
		s.err = s.server.Run(ctx)
	}()
	select {
	case <-s.told:
	case <-s.ended:
		cancel()
		t.Fatalf("Run ended at once: %v", s.err)
	}
	t.Cleanup(func() {
		cancel()
		<-s.ended
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, a := range s.apps {
			for _, wrong := range a.wrong {
				t.Errorf("%s: %s", a.name, wrong)
			}
			if a.drained != 1 {
				t.Errorf("%s was drained %d times, want once", a.name, a.drained)
			}
		}
		if t.Failed() {
			t.Logf("log:\n%s", s.log)
		}
	})
	return s
}

func withAdmin(s *site, _ *listener.Options) {
	s.config.Admin = config.Admin{Listen: "127.0.0.1:0", Token: token}
}

// withKeptPorts lets the server listen on ports that are kept for it until the test
// ends: when it has closed them, the kernel gives them to no other program.
func withKeptPorts(s *site, _ *listener.Options) {
	s.config.Listen = porthold.Lent(s.t)
	if s.config.Admin.Listen != "" {
		s.config.Admin.Listen = porthold.Lent(s.t)
	}
}

// end waits for Run and returns its error.
func (s *site) end() error {
	s.stop()
	select {
	case <-s.ended:
	case <-time.After(enough):
		s.t.Fatal("Run did not end")
	}
	return s.err
}

// change changes the configuration, and returns when the server has looked at it.
func (s *site) change(f func(*config.Config)) {
	s.t.Helper()
	s.mu.Lock()
	f(&s.config)
	s.mu.Unlock()
	s.reloadNow()
}

// reloadNow returns when the reload is done, well or not.
func (s *site) reloadNow() {
	s.t.Helper()
	before := strings.Count(s.log.String(), "reloaded")
	select {
	case s.reload <- struct{}{}:
	case <-time.After(enough):
		s.t.Fatal("the server takes no reload")
	}
	eventually(s.t, "the reload ends", func() bool { return strings.Count(s.log.String(), "reloaded") > before })
}

func (s *site) addresses() listener.Addresses {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *site) app(i int) *app {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apps[i]
}

func (s *site) appsSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.apps)
}

func (s *site) host() string {
	_, host, _ := strings.Cut(s.addresses().Main, "://")
	return host
}

// client returns a client with connections of its own.
func (s *site) client() *http.Client {
	tr := &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 1000,
	}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: enough}
}

func get(t *testing.T, c *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	status, body, err := try(t.Context(), c, http.MethodGet, url, header...)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

func try(ctx context.Context, c *http.Client, method, url string, header ...string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// dial opens a connection that ends with the test, and within enough time.
func dial(t *testing.T, host string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(enough))
	return c
}

func dialTLS(t *testing.T, host, protocol string) *tls.Conn {
	t.Helper()
	c := tls.Client(dial(t, host), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, c io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// read reads one response, with its body.
func read(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("read response: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read response: %v", err)
	}
	return res, string(body)
}

// closed reports whether the other side hangs up without a further byte.
func closed(r io.Reader) error {
	n, err := io.Copy(io.Discard, r)
	if n > 0 {
		return fmt.Errorf("%d more bytes came", n)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the connection stays open")
	}
	return nil
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(enough); !f(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// certify writes a new certificate for this machine with the serial number.
func certify(t *testing.T, dir string, serial int64) config.TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	replace(t, files.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	replace(t, files.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	return files
}

// replace writes a file as careful programs do.
func replace(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func withTLS(t *testing.T) func(*site, *listener.Options) {
	files := certify(t, t.TempDir(), 1)
	return func(s *site, _ *listener.Options) { s.config.TLS = files }
}

// A journal keeps what was logged.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
