package certfile_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
