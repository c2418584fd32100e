package gateway

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// A watcher watches the files of a configuration for changes.
type watcher struct {
	ctx     context.Context // of the goroutines that watch
	path    string
	changed func()
	logger  *slog.Logger
	running *sync.WaitGroup // of the goroutines that watch

	files []string // that are watched
	stop  context.CancelFunc
}

// load reads the configuration such that no change of its files is missed: each file is
// watched before it is read. A nil watcher only reads. It is not called concurrently.
func (w *watcher) load(read func() (*config.Config, error)) (*config.Config, error) {
	if w == nil {
		return read()
	}
	if w.files == nil {
		w.watch([]string{w.path})
	}
	for {
		c, err := read()
		if err != nil {
			return nil, err
		}
		files := append([]string{w.path}, c.Files()...)
		if slices.Equal(files, w.files) {
			return c, nil
		}
		w.watch(files)
	}
}

// watch watches these files instead of those before.
func (w *watcher) watch(files []string) {
	if w.stop != nil {
		w.stop()
	}
	ctx, stop := context.WithCancel(w.ctx)
	w.files, w.stop = files, stop
	run, err := config.Watch(ctx, files, w.changed)
	if err != nil {
		w.logger.Error("retrysafe: changes of the configuration are not noticed; send SIGHUP instead", "error", err)
		return
	}
	w.running.Go(func() {
		defer stop()
		run()
	})
}
