package front

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/gateway/config"
)

// A certificate is read from its files, and read again when they have changed. Files
// that cannot be used change nothing.
type certificate struct {
	files  config.TLS
	logger *slog.Logger
	usable atomic.Pointer[tls.Certificate]
	next   atomic.Int64 // since epoch: when to look at the files again

	seen [2]os.FileInfo // guarded by whoever has moved next
}

// look is how often handshakes look at the files.
const look = time.Second

func loadCertificate(files config.TLS, logger *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, logger: logger}
	c.seen = c.stat()
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	c.usable.Store(&pair)
	return c, nil
}

// get is for [tls.Config.GetCertificate]. One handshake in a while pays for looking;
// the others do not wait for it.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now, next := int64(time.Since(epoch)), c.next.Load()
	if now >= next && next != looking && c.next.CompareAndSwap(next, looking) {
		c.refresh()
		c.next.Store(now + int64(look))
	}
	return c.usable.Load(), nil
}

const looking = -1

// refresh reads the files if they have changed. A file that was replaced before the
// other one does not fit: it is read again with it.
func (c *certificate) refresh() {
	now := c.stat()
	if same(now[0], c.seen[0]) && same(now[1], c.seen[1]) {
		return
	}
	c.seen = now
	pair, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		c.logger.Error("front: the new certificate cannot be used, the old one is shown on", "file", c.files.CertFile, "error", err)
		return
	}
	c.usable.Store(&pair)
	c.logger.Info("front: new certificate", "file", c.files.CertFile, "until", pair.Leaf.NotAfter)
}

// stat returns nil for a file that is not there.
func (c *certificate) stat() (now [2]os.FileInfo) {
	for i, file := range []string{c.files.CertFile, c.files.KeyFile} {
		if info, err := os.Stat(file); err == nil {
			now[i] = info
		}
	}
	return now
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
