package pgstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// disconnect ends all other connections to the database.
func disconnect(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	exec(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
}

// refusedWith fails unless steps of the store fail, with an error that has the words,
// and nothing is stored.
func refusedWith(t *testing.T, s *pgstore.Store, conn *pgx.Conn, words ...string) {
	t.Helper()
	var err error
	eventually(t, "the broken connections are gone", func() bool {
		_, err = s.Create(t.Context(), fresh("refused"))
		return err != nil && strings.Contains(err.Error(), words[0])
	})
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not have %q: %v", word, err)
		}
	}
	if n := one[int](t, conn, `SELECT count(*)::int FROM retrysafe_keys WHERE state = 2`); n != 0 {
		t.Errorf("%d keys were reserved", n)
	}
}

// heals fails unless the store takes a key again, without being opened again.
func heals(t *testing.T, s *pgstore.Store) {
	t.Helper()
	eventually(t, "the store works again", func() bool {
		r, err := s.Create(t.Context(), fresh(rand.Text()))
		if err == nil {
			_, err = s.Swap(t.Context(), done(r, "answer"))
		}
		return err == nil
	})
}

// The error of a server without TLS begins with the cause, unless TLS is what was asked for.
func TestCauseComesBeforeTLS(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(testservers.Shared(t))
	must(t, err)
	u.Path = "/not_there"
	for mode, c := range map[string]struct{ says, hides string }{
		"prefer": {`database "not_there" does not exist (SQLSTATE 3D000) (create the database first)`, "TLS"}, "require": {"server refused TLS connection", "not_there\" does not"},
	} {
		q := u.Query()
		q.Set("sslmode", mode)
		u.RawQuery = q.Encode()
		_, err := pgstore.Open(t.Context(), u.String(), nil)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), c.hides) || strings.Contains(err.Error(), "\n") {
			t.Errorf("sslmode=%s: %v", mode, err)
		}
	}
}

// The name of the database's host does not resolve any more. Nothing is reserved, the
// error names DNS and the host, and the store goes on when the name resolves again.
func TestDNSFailureIsNamed(t *testing.T) {
	t.Parallel()
	address := testservers.Shared(t)
	conn := connect(t, address)
	u, err := url.Parse(address)
	must(t, err)
	u.Host = net.JoinHostPort("db.invalid", u.Port())
	config, err := pgxpool.ParseConfig(u.String())
	must(t, err)
	var down atomic.Bool
	config.ConnConfig.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		if down.Load() {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return []string{"127.0.0.1"}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	s, err := pgstore.New(t.Context(), pool, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	heals(t, s)
	down.Store(true)
	disconnect(t, conn)
	refusedWith(t, s, conn, "DNS", "db.invalid", "store's URL")
	down.Store(false)
	heals(t, s)
}

// A pool of the caller's may get a password that lasts for minutes each time before it
// connects. The store's own connections do the same. If that fails the step fails, with
// its error, and the store goes on when it succeeds again.
func TestStoreConnectsAsThePoolDoes(t *testing.T) {
	t.Parallel()
	address := testservers.Shared(t)
	conn := connect(t, address)
	config, err := pgxpool.ParseConfig(as(t, address, "stranger"))
	must(t, err)
	refused := errors.New("no password today")
	var down atomic.Bool
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if down.Load() {
			return refused
		}
		c.User = "postgres"
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	s, err := pgstore.New(t.Context(), pool, nil)
	must(t, err)
	defer s.Close()
	heals(t, s)
	down.Store(true)
	disconnect(t, conn)
	eventually(t, "a step needs a new connection", func() bool {
		_, err = s.Load(t.Context(), refOf("k"))
		return errors.Is(err, refused)
	})
	down.Store(false)
	heals(t, s)
	must(t, s.Close())
	eventually(t, "the pool, which stays the caller's, connects", func() bool { return pool.Ping(t.Context()) == nil })
}

// The certificate of the database's server has expired, and sslmode is verify-full. The
// store does not open, a store that is open reserves nothing, the error names the cause
// and the server, and the store goes on with the next certificate.
func TestExpiredCertificateOfTheServerIsNamed(t *testing.T) {
	t.Parallel()
	address := testservers.Shared(t)
	conn := connect(t, address)
	u, err := url.Parse(address)
	must(t, err)
	front := newTLSFront(t, u.Host)
	u.Host = front.address
	u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {front.root}}.Encode()

	front.shows.Store(front.expired)
	if s, err := pgstore.Open(t.Context(), u.String(), nil); err == nil || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("with an expired certificate Open gives %v, %v", s, err)
	}
	front.shows.Store(front.valid)
	s := open(t, u.String(), nil)
	heals(t, s)
	front.shows.Store(front.expired)
	disconnect(t, conn)
	refusedWith(t, s, conn, "has expired", front.address, "renew")
	front.shows.Store(front.valid)
	heals(t, s)
}

// A tlsFront speaks TLS for a server that does not, with a certificate of the test's.
type tlsFront struct {
	address, root  string
	valid, expired *tls.Certificate
	shows          atomic.Pointer[tls.Certificate]
}

func newTLSFront(t *testing.T, server string) *tlsFront {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	var roots []byte
	issue := func(until time.Time) *tls.Certificate {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotBefore: until.Add(-2 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			IsCA: true, BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
		must(t, err)
		roots = append(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
	}
	f := &tlsFront{valid: issue(time.Now().Add(time.Hour)), expired: issue(time.Now().Add(-time.Hour)), root: filepath.Join(t.TempDir(), "root.pem")}
	must(t, os.WriteFile(f.root, roots, 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f.address = l.Addr().String()
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.serve(ctx, c, server) })
		}
	})
	return f
}

// serve answers the request for TLS and passes on what is inside.
func (f *tlsFront) serve(ctx context.Context, c net.Conn, server string) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.ReadFull(c, make([]byte, 8)); err != nil {
		return
	}
	if _, err := c.Write([]byte("S")); err != nil {
		return
	}
	inside := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*f.shows.Load()}, MinVersion: tls.VersionTLS12})
	if inside.HandshakeContext(ctx) != nil {
		return
	}
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer to.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(inside, to)
		_ = c.Close()
	})
	_, _ = io.Copy(to, inside)
	_ = to.Close()
	back.Wait()
}

// A server that takes no writes, as a standby does, still replays. A new key is refused
// by an error that names the cause and the remedy, and so is a step that was sent before:
// its own row proves nothing there.
func TestReadOnlyServerReplays(t *testing.T) {
	t.Parallel()
	primary := testservers.NewPostgres(t, inMemory)
	s := open(t, primary.URL("postgres"), nil)
	answered, err := s.Create(t.Context(), fresh("answered"))
	must(t, err)
	_, err = s.Swap(t.Context(), done(answered, "answer"))
	must(t, err)
	mine := fresh("mine")
	_, err = s.Create(t.Context(), mine)
	must(t, err)
	standby := testservers.NewStandby(t, primary, nil)
	must(t, standby.CatchUp(t.Context()))

	r := open(t, standby.URL("postgres"), &pgstore.Options{SkipMigrations: true, Timeout: time.Minute})
	for i := range 2 * 10 { // by the statement of a calm time too
		got, err := r.Create(t.Context(), fresh("answered"))
		if !errors.Is(err, retrysafe.ErrExists) || got.Result == nil || string(got.Result.Body) != "answer" {
			t.Fatalf("try %d: the stored answer is %+v, %v", i, got.Result, err)
		}
		for _, w := range []retrysafe.Write{fresh("new"), mine} {
			if _, err := r.Create(t.Context(), w); err == nil || !strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), "target_session_attrs") {
				t.Fatalf("try %d: %s gets %v", i, w.Key, err)
			}
		}
	}
	must(t, primary.Kill())
	must(t, standby.Promote(t.Context()))
	if _, err := r.Create(t.Context(), mine); err != nil {
		t.Errorf("the step is not recognised by the new primary: %v", err)
	}
	heals(t, r)
}
