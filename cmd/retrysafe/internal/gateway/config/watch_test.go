package config_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// watching runs a watcher, and returns what to wait on for a change. The change
// that is awaited must be there already.
func watching(t *testing.T, w config.Watcher) (changes <-chan struct{}) {
	t.Helper()
	told := make(chan struct{}, 100)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func() { told <- struct{}{} })
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return told
}

// once waits for a change and checks that it was told of once.
func once(t *testing.T, changes <-chan struct{}) {
	t.Helper()
	<-changes
	if n := len(changes); n > 0 {
		t.Errorf("it was told %d times more", n)
	}
}

// never is how often a watcher looks that must rely on what the system tells.
const never = time.Hour

func TestWatchNoticesHowFilesAreReplaced(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(t *testing.T, path string){
		"written over": func(t *testing.T, path string) { write(t, path, "new") },
		"renamed into place, as editors do": func(t *testing.T, path string) {
			put(t, path, "new")
		},
		"moved away and written anew, as others do": func(t *testing.T, path string) {
			must(t, os.Rename(path, path+"~"))
			write(t, path, "new")
		},
		"removed and written anew": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			write(t, path, "new")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, "gw.yaml", "old")
			changes := watching(t, config.NewWatcher(never, path))
			replace(t, path)
			once(t, changes)
		})
	}
}

// Kubernetes shows a folder as a link to one that is never changed: for a new
// version it makes another and swaps a link above it.
func TestWatchNoticesSwappedLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, text string) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name, "gw.yaml"), text)
		must(t, os.Symlink(name, filepath.Join(dir, "..tmp")))
		must(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	}
	version("..1", "one")
	path := filepath.Join(dir, "gw.yaml")
	must(t, os.Symlink(filepath.Join("..data", "gw.yaml"), path))
	changes := watching(t, config.NewWatcher(never, path))
	version("..2", "two")
	must(t, os.RemoveAll(filepath.Join(dir, "..1")))
	once(t, changes)
	version("..3", "three")
	once(t, changes)
	write(t, filepath.Join(dir, "..3", "gw.yaml"), "behind the link")
	once(t, changes)
}

func TestWatchLooksByItself(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	write(t, filepath.Join(a, "gw.yaml"), "old")
	write(t, filepath.Join(b, "gw.yaml"), "new")
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(a, link))
	changes := watching(t, config.NewWatcher(time.Millisecond, filepath.Join(link, "gw.yaml")))
	must(t, os.Symlink(b, link+"2")) // the folder itself is swapped, without an event for the file
	must(t, os.Rename(link+"2", link))
	once(t, changes)
}

func TestWatchIsAboutContent(t *testing.T) {
	t.Parallel()
	path := write(t, "gw.yaml", "old")
	late := filepath.Join(filepath.Dir(path), "late") // is not there yet
	w := config.NewWatcher(time.Millisecond, path, late)
	changes := watching(t, w)
	must(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
	put(t, path, "old")
	must(t, os.Remove(path)) // and gone for now
	put(t, late, "here")
	once(t, changes) // that is the only change
	put(t, path, "old")
	put(t, late, "there")
	once(t, changes)
}

// A folder in which something is always going on, such as a database, does not
// hide a change.
func TestWatchInABusyFolder(t *testing.T) {
	t.Parallel()
	path := write(t, "gw.yaml", "old")
	changes := watching(t, config.NewWatcher(never, path))
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			_ = os.WriteFile(path+".db", []byte("x"), 0o600)
		}
	}()
	write(t, path, "new")
	once(t, changes)
	stop.Store(true)
	<-done
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	run, err := config.Watch(ctx, []string{filepath.Join(t.TempDir(), "none", "gw.yaml")}, func() { t.Error("nothing changed") })
	must(t, err)
	run()
	if _, err := config.Watch(t.Context(), nil, nil); err == nil {
		t.Error("no files are watched for ever")
	}
}

// The goroutine that watches may come late: what has changed since Watch was called is a
// change, whether or not it runs yet.
func TestWatchNoticesWhatChangesBeforeItRuns(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "gw.yaml"), "old")
	ctx, stop := context.WithCancel(t.Context())
	changes := 0
	run, err := config.Watch(ctx, []string{path}, func() { changes++; stop() })
	must(t, err)
	write(t, path, "new")
	run()
	if changes != 1 {
		t.Errorf("it was told %d times", changes)
	}
}

// put puts a file into place whole.
func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.Rename(write(t, path+".tmp", text), path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
