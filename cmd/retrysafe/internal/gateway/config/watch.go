package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch looks at files, and returns a function that calls changed each time that one of
// them has got another content, until ctx ends. What they hold when Watch is called counts
// as known, so call it before the files are read, and the function in another goroutine.
//
// It is the content that counts: a file that is touched, or replaced by a copy of
// itself, has not changed, and neither has one that is gone for now. Editors that
// rename a new file into place and Kubernetes, which swaps a symbolic link above
// it, are noticed at once where the system tells of changes in folders, and
// within seconds elsewhere.
func Watch(ctx context.Context, paths []string, changed func()) (run func(), err error) {
	if len(paths) == 0 {
		return nil, errors.New("config: Watch was given no files")
	}
	w := newWatcher(paths)
	return func() { w.run(ctx, changed) }, nil
}

// Files returns the files, besides the one that c was read from, that a gateway
// reads once when it starts on c. Certificates of listeners and the keys of
// tokens are not among them: they are read again by themselves.
func (c *Config) Files() []string {
	var all []string
	for _, f := range append([]string{
		c.StoreFile, c.Admin.TokenFile, c.Admin.MetricsTokenFile, c.Encryption.KeysFile,
		c.UpstreamTLS.CAFile, c.UpstreamTLS.CertFile, c.UpstreamTLS.KeyFile,
	}, c.reconcileFiles()...) {
		if f != "" {
			all = append(all, f)
		}
	}
	for i := range c.Ledger {
		if f := c.Ledger[i].Theirs.TokenFile; f != "" {
			all = append(all, f)
		}
	}
	for _, h := range c.Tracing.HeaderFiles {
		all = append(all, h.File)
	}
	return slices.Concat(all, c.adminFiles(), c.webhookFiles())
}

const (
	// settle is how long files must stay as they are before they count: the program that
	// writes them may not be done.
	settle = 100 * time.Millisecond
	// poll is how often they are looked at, whatever the system tells.
	poll = 3 * time.Second
)

// A watcher compares what is in files. What the system tells of only makes it
// look sooner, so nothing is lost where it tells nothing or too late.
type watcher struct {
	paths        []string
	known        map[string][sha256.Size]byte
	settle, poll time.Duration
}

func newWatcher(paths []string) *watcher {
	w := &watcher{paths: paths, settle: settle, poll: poll}
	w.known = w.look(nil)
	return w
}

// look returns the sums of the files' contents. A file that cannot be read keeps
// its former one.
func (w *watcher) look(former map[string][sha256.Size]byte) map[string][sha256.Size]byte {
	sums := make(map[string][sha256.Size]byte, len(w.paths))
	for _, p := range w.paths {
		if text, err := os.ReadFile(p); err == nil {
			sums[p] = sha256.Sum256(text)
		} else if sum, ok := former[p]; ok {
			sums[p] = sum
		}
	}
	return sums
}

func (w *watcher) run(ctx context.Context, changed func()) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	hints, err := fsnotify.NewWatcher()
	if err == nil {
		defer hints.Close()
		events, failures = hints.Events, hints.Errors
		w.follow(hints)
	}
	due := time.NewTimer(w.settle) // something may have happened since the first look
	defer due.Stop()
	for seen, soon := w.known, true; ; {
		select {
		case <-ctx.Done():
			return
		case <-failures:
		case <-events:
			if !soon { // in a busy folder the look is not put off for ever
				soon = true
				due.Reset(w.settle)
			}
		case <-due.C:
			now := w.look(w.known)
			soon = !maps.Equal(now, seen) // it may not be done
			seen = now
			if soon {
				due.Reset(w.settle)
				continue
			}
			due.Reset(w.poll)
			if hints != nil {
				w.follow(hints)
			}
			if !maps.Equal(now, w.known) {
				w.known = now
				changed()
			}
		}
	}
}

// follow watches the folders that the files are in, and those that links lead to,
// which may be others each time.
func (w *watcher) follow(hints *fsnotify.Watcher) {
	for _, p := range w.paths {
		_ = hints.Add(filepath.Dir(p))
		if to, err := filepath.EvalSymlinks(p); err == nil {
			_ = hints.Add(filepath.Dir(to))
		}
	}
}
