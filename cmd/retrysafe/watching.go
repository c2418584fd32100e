package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// watching waits for changes of a configuration's files.
type watching struct {
	ctx     context.Context // of the goroutines that load starts
	path    string
	changed func()
	logger  *slog.Logger
	all     *sync.WaitGroup // of who watches

	files []string // that are watched
	stop  context.CancelFunc
}

// load reads the configuration such that no change of a file that it rests on is
// missed: a file is watched before it is read. It is not called concurrently.
func (w *watching) load(read func() (*config.Config, error)) (*config.Config, error) {
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

// watch watches these files, and no others any more.
func (w *watching) watch(files []string) {
	if w.stop != nil {
		w.stop()
	}
	ctx, stop := context.WithCancel(w.ctx)
	w.files, w.stop = files, stop
	w.all.Go(func() {
		defer stop()
		if err := config.Watch(ctx, files, w.changed); err != nil {
			w.logger.Error("retrysafe: changes of the configuration are not noticed; send SIGHUP instead", "error", err)
		}
	})
}
