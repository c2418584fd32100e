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
// they have changed. Files that cannot be used change nothing. A certificate that is
// about to expire, or has expired, is logged, once each, and is shown all the same: its
// peers refuse it.
type Pair struct {
	files  [2]string
	logger *slog.Logger
	usable atomic.Pointer[tls.Certificate]
	next   atomic.Int64 // since epoch: when to look at the files again

	// Guarded by the caller that advanced next.
	seen   [2]os.FileInfo
	warned warning
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
	p.checkExpiry(time.Now())
	return p, nil
}

// Current returns the certificate. One handshake in a while pays for looking; the
// others do not wait for it.
func (p *Pair) Current() *tls.Certificate {
	now, next := int64(time.Since(epoch)), p.next.Load()
	if now >= next && next != looking && p.next.CompareAndSwap(next, looking) {
		p.refresh()
		p.checkExpiry(time.Now())
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
	p.warned = warnedOfNothing
	p.logger.Info("retrysafe: new certificate", "file", p.files[0], "until", pair.Leaf.NotAfter)
}

// A warning is what was logged of a certificate's expiry.
type warning uint8

const (
	warnedOfNothing warning = iota
	warnedOfEnd             // it is about to expire
	warnedExpired
)

// checkExpiry logs that the certificate is in the last tenth of its life, in which it
// should have been renewed, and that it has expired.
func (p *Pair) checkExpiry(now time.Time) {
	leaf := p.usable.Load().Leaf
	left := leaf.NotAfter.Sub(now)
	attrs := []any{"file", p.files[0], "until", leaf.NotAfter, "fix", "replace the files by a renewed pair; they are read again by themselves"}
	switch {
	case left <= 0 && p.warned < warnedExpired:
		p.warned = warnedExpired
		p.logger.Error("retrysafe: the certificate has expired, and peers refuse it", attrs...)
	case left > 0 && left <= leaf.NotAfter.Sub(leaf.NotBefore)/10 && p.warned < warnedOfEnd:
		p.warned = warnedOfEnd
		p.logger.Warn("retrysafe: the certificate expires soon", attrs...)
	}
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
