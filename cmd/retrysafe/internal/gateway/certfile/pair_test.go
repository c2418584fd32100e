package certfile_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/certfile"
)

// issue writes a certificate that lives from one time to the other, and its key.
func issue(t *testing.T, dir string, from, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		must(t, os.WriteFile(file+".new", pem.EncodeToMemory(&block), 0o600))
		must(t, os.Rename(file+".new", file))
	}
	return cert, key
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A certificate is logged when it is in the last tenth of its life and when it has
// expired, with its file, and once each. Its successor begins anew.
func TestExpiryOfTheCertificateIsLogged(t *testing.T) {
	t.Parallel()
	const soon, over = "expires soon", "has expired"
	now := time.Now()
	for _, c := range []struct {
		name        string
		from, until time.Duration
		want        string
	}{
		{"in its prime", -time.Hour, 10 * time.Hour, ""},
		{"at its end", -100 * time.Hour, time.Hour, soon},
		{"expired", -100 * time.Hour, -time.Hour, over},
	} {
		dir, log := t.TempDir(), new(bytes.Buffer)
		cert, key := issue(t, dir, now.Add(c.from), now.Add(c.until))
		p, err := certfile.Load(cert, key, slog.New(slog.NewTextHandler(log, nil)))
		must(t, err)
		if c.want != "" && !strings.Contains(log.String(), c.want) {
			t.Errorf("%s: that is not logged before the first handshake: %s", c.name, log)
		}
		for range 3 {
			if p.Current() == nil {
				t.Errorf("%s: it is not shown", c.name)
			}
		}
		for _, text := range []string{soon, over} {
			want := 0
			if text == c.want {
				want = 1
			}
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("%s: %q is logged %d times, want %d: %s", c.name, text, got, want, log)
			}
		}
		if c.want != "" && !strings.Contains(log.String(), cert) {
			t.Errorf("%s: the log does not name the file: %s", c.name, log)
		}
		log.Reset()
		issue(t, dir, now.Add(-100*time.Hour), now.Add(-time.Minute))
		for end := time.Now().Add(time.Minute); !strings.Contains(log.String(), over); time.Sleep(20 * time.Millisecond) {
			if p.Current(); time.Now().After(end) {
				t.Fatalf("%s: that its successor has expired is not logged: %s", c.name, log)
			}
		}
	}
}

// mint returns a certificate and its key as files have them, each as long as any other:
// what follows in a file is ignored.
func mint(t *testing.T) (cert, key []byte) {
	t.Helper()
	certFile, keyFile := issue(t, t.TempDir(), time.Now().Add(-time.Hour), time.Now().Add(100*time.Hour))
	for file, text := range map[string]*[]byte{certFile: &cert, keyFile: &key} {
		read, err := os.ReadFile(file)
		must(t, err)
		*text = append(read, bytes.Repeat([]byte("\n"), 2048-len(read))...)
	}
	return cert, key
}

// shows fails if the next handshake is not given the certificate.
func shows(t *testing.T, p *certfile.Pair, what string, cert []byte) {
	t.Helper()
	p.Look()
	block, _ := pem.Decode(cert)
	if got := p.Current(); !bytes.Equal(got.Certificate[0], block.Bytes) {
		t.Errorf("%s: another certificate is shown", what)
	}
}

// Files are read again however they are replaced: by a rename, in place, or behind a link.
// Files that do not fit each other change nothing, and are logged once.
func TestPairFollowsItsFiles(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(log, nil))
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	then := time.Now().Add(-time.Hour).Truncate(time.Second)
	put := func(file string, text []byte, at time.Time) {
		must(t, os.WriteFile(file, text, 0o600))
		must(t, os.Chtimes(file, at, at))
	}
	cert, key := mint(t)
	other, otherKey := mint(t)
	put(certFile, cert, then)
	if _, err := certfile.Load(certFile, keyFile, logger); err == nil {
		t.Error("a certificate without its key is loaded")
	}
	put(keyFile, otherKey, then)
	if _, err := certfile.Load(certFile, keyFile, logger); err == nil {
		t.Error("a certificate with the key of another one is loaded")
	}
	put(keyFile, key, then)
	p, err := certfile.Load(certFile, keyFile, logger)
	must(t, err)
	shows(t, p, "as loaded", cert)

	put(certFile, other, then.Add(time.Minute)) // in place, as long as before
	for range 3 {
		shows(t, p, "the key is still the old one", cert)
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("that it does not fit is logged %d times: %s", n, log)
	}
	put(keyFile, otherKey, then.Add(time.Minute))
	shows(t, p, "both were written in place", other)

	put(certFile+".new", cert, then.Add(time.Minute)) // as long and as old as before
	put(keyFile+".new", key, then.Add(time.Minute))
	must(t, os.Rename(certFile+".new", certFile))
	must(t, os.Rename(keyFile+".new", keyFile))
	shows(t, p, "both were renamed", cert)

	put(certFile, append(other, '\n'), then.Add(time.Minute)) // as old as before
	put(keyFile, append(otherKey, '\n'), then.Add(time.Minute))
	shows(t, p, "both are longer", other)

	must(t, os.Remove(keyFile))
	shows(t, p, "the key is gone", other)
	put(certFile, cert, then)
	put(keyFile, key, then)
	shows(t, p, "the key is there again", cert)
}

// A secret that is mounted by Kubernetes is a link to a folder behind a link that is
// replaced.
func TestPairFollowsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var certs [2][]byte
	for i, name := range []string{"one", "two"} {
		cert, key := mint(t)
		certs[i] = cert
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name, "tls.crt"), cert, 0o600))
		must(t, os.WriteFile(filepath.Join(dir, name, "tls.key"), key, 0o600))
	}
	data := filepath.Join(dir, "data")
	must(t, os.Symlink("one", data))
	for _, file := range []string{"tls.crt", "tls.key"} {
		must(t, os.Symlink(filepath.Join("data", file), filepath.Join(dir, file)))
	}
	p, err := certfile.Load(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), slog.New(slog.DiscardHandler))
	must(t, err)
	shows(t, p, "as loaded", certs[0])
	must(t, os.Symlink("two", data+".new"))
	must(t, os.Rename(data+".new", data))
	shows(t, p, "the folder is another one", certs[1])
}

// While one handshake looks at the files the others go on, with the old certificate or
// the new one.
func TestHandshakesDoNotWaitForTheFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issueIn := func() (string, string) {
		return issue(t, dir, time.Now().Add(-time.Hour), time.Now().Add(100*time.Hour))
	}
	certFile, keyFile := issueIn()
	log := &heldLog{Handler: slog.DiscardHandler, entered: make(chan struct{}), leave: make(chan struct{})}
	p, err := certfile.Load(certFile, keyFile, slog.New(log))
	must(t, err)
	issueIn()
	looked := make(chan *tls.Certificate)
	go func() { looked <- p.Current() }()
	<-log.entered
	for range 3 {
		if p.Current() == nil {
			t.Error("there is no certificate")
		}
	}
	close(log.leave)
	if <-looked == nil {
		t.Error("there is no certificate")
	}
}

// A heldLog holds up the line about a new certificate.
type heldLog struct {
	slog.Handler
	entered, leave chan struct{}
}

func (*heldLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *heldLog) Handle(context.Context, slog.Record) error {
	close(l.entered) // a second one panics
	<-l.leave
	return nil
}
