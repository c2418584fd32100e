// Package certfile loads a certificate and its key from files and loads them again when
// the files change. A server presents it to its clients, or a client to its server.
package certfile

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// A Pair is a certificate and its key. It is read from its files, and read again when
// they have changed. Files that cannot be used change nothing.
type Pair struct {
	files  [2]string
	logger *slog.Logger
	usable atomic.Pointer[tls.Certificate]
	next   atomic.Int64 // since epoch: when to look at the files again

	seen [2]os.FileInfo // guarded by the caller that advanced next
}

// epoch is what durations are measured from, by the monotonic clock.
var epoch = time.Now()

// look is how often handshakes look at the files.
const look = time.Second

// Load reads a pair.
func Load(certFile, keyFile string, logger *slog.Logger) (*Pair, error) {
	p := &Pair{files: [2]string{certFile, keyFile}, logger: logger}
	p.seen = p.stat()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	p.usable.Store(&pair)
	return p, nil
}

// Current returns the certificate. One handshake in a while pays for looking; the
// others do not wait for it.
func (p *Pair) Current() *tls.Certificate {
	now, next := int64(time.Since(epoch)), p.next.Load()
	if now >= next && next != looking && p.next.CompareAndSwap(next, looking) {
		p.refresh()
		p.next.Store(now + int64(look))
	}
	return p.usable.Load()
}

const looking = -1

// refresh reads the files if they have changed. A file that was replaced before the
// other one does not fit: it is read again with it.
func (p *Pair) refresh() {
	now := p.stat()
	if same(now[0], p.seen[0]) && same(now[1], p.seen[1]) {
		return
	}
	p.seen = now
	pair, err := tls.LoadX509KeyPair(p.files[0], p.files[1])
	if err != nil {
		p.logger.Error("retrysafe: the new certificate cannot be used, the old one is shown on", "file", p.files[0], "error", err)
		return
	}
	p.usable.Store(&pair)
	p.logger.Info("retrysafe: new certificate", "file", p.files[0], "until", pair.Leaf.NotAfter)
}

// stat returns nil for a file that is not there.
func (p *Pair) stat() (now [2]os.FileInfo) {
	for i, file := range p.files {
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
