package listener_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

func TestCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := certify(t, dir, 1)
	s := start(t, nil, func(s *site, _ *listener.Options) { s.config.TLS = files })
	serial := func() int64 {
		c := dialTLS(t, s.host(), "http/1.1")
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Fatalf("got certificate %d, want 1", got)
	}
	certify(t, dir, 2)
	eventually(t, "the new certificate is shown", func() bool { return serial() == 2 })

	// One that is broken changes nothing, and neither does one that is gone.
	replace(t, files.CertFile, []byte("no certificate"))
	eventually(t, "the broken certificate is noticed", func() bool {
		if got := serial(); got != 2 {
			t.Fatalf("got certificate %d while the file is broken, want 2", got)
		}
		return strings.Contains(s.log.String(), "cannot be used")
	})
	certify(t, dir, 3)
	eventually(t, "a whole certificate is shown again", func() bool { return serial() == 3 })

	// A reload with a broken certificate is refused like any other.
	replace(t, files.KeyFile, []byte("no key"))
	s.change(func(c *config.Config) { c.Server.MaxHeader = 1 << 15 })
	if n := s.appsSoFar(); n != 1 {
		t.Errorf("%d apps were built, want none for a certificate that cannot be used", n)
	}
	if got := serial(); got != 3 {
		t.Errorf("got certificate %d after a refused reload, want 3", got)
	}
}
