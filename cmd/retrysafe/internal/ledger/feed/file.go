package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

// file returns the list of a period that is in a file.
func (f *Feed) file(ctx context.Context, p *Period) (List, error) {
	path := f.fill(f.File, p)
	if f.Directory != "" {
		var err error
		if path, err = f.newest(p); err != nil {
			return List{}, err
		}
	}
	before, err := stat(path)
	if err != nil {
		return List{}, err
	}
	// A list that is not of one day cannot have all of the period if it was written before the period ended.
	if at := before.ModTime(); !f.Daily() && !p.Until.IsZero() && at.Before(p.Until) {
		return List{}, fmt.Errorf("%w: %s was written at %s, before the period ended", ErrNotYet, path, at.UTC().Format(time.RFC3339))
	}
	if before.Size() > f.maxBytes() {
		return List{}, fmt.Errorf("%s: %w: it has %d bytes, and %d are allowed", path, ledger.ErrTooLarge, before.Size(), f.maxBytes())
	}
	if wait := f.settle() - time.Since(before.ModTime()); wait > 0 || before.Size() == 0 {
		if err := f.settled(ctx, path, before); err != nil {
			return List{}, err
		}
	}
	return List{Name: path, source: f.readFile(path, before)}, nil
}

// settled waits, and returns an error if the file has changed meanwhile: it is still being written.
func (f *Feed) settled(ctx context.Context, path string, before fs.FileInfo) error {
	select {
	case <-time.After(f.settle()):
	case <-ctx.Done():
		return ctx.Err()
	}
	now, err := stat(path)
	if err != nil {
		return err
	}
	if changed(before, now) {
		return fmt.Errorf("%w: %s is still being written", ErrNotYet, path)
	}
	return nil
}

func stat(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: there is no %s", ErrNotYet, path)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a plain file", path)
	}
	return info, nil
}

func changed(a, b fs.FileInfo) bool {
	return a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || !os.SameFile(a, b)
}

// readFile reads a file that is expected to stay as it is. If it has changed at the end, it was not whole.
func (f *Feed) readFile(path string, before fs.FileInfo) ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(ledger.Entry{}, err)
			return
		}
		defer file.Close()
		for e, err := range f.rows(file, formatOf(path)) {
			if !yield(e, err) || err != nil {
				return
			}
		}
		if now, err := stat(path); err != nil {
			yield(ledger.Entry{}, err)
		} else if changed(before, now) {
			yield(ledger.Entry{}, fmt.Errorf("%w: it has changed while it was read", ErrNotYet))
		}
	}
}

// rows reads a list.
func (f *Feed) rows(r io.Reader, format string) ledger.Source {
	if f.Format != "" {
		format = f.Format
	}
	if format == JSONL {
		return ledger.JSONL(r, f.Columns)
	}
	return ledger.CSV(r, f.Columns)
}

// unfinished are the endings of the names of files that are still being written.
var unfinished = []string{".tmp", ".part", ".partial", ".crdownload", ".filepart", "~"}

// newest returns the file of the directory that was written last.
func (f *Feed) newest(p *Period) (string, error) {
	dir, pattern := f.fill(f.Directory, p), f.fill(f.Pattern, p)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(f.Directory, "{day}"):
		return "", fmt.Errorf("%w: there is no %s", ErrNotYet, dir)
	case err != nil:
		return "", err
	}
	var path string
	var latest fs.FileInfo
	for _, e := range entries {
		name := e.Name()
		ignored := strings.HasPrefix(name, ".") || slices.ContainsFunc(unfinished, func(end string) bool { return strings.HasSuffix(name, end) })
		if matches, _ := filepath.Match(pattern, name); ignored || pattern != "" && !matches {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, name)) // a link to a file is a file
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if latest == nil || info.ModTime().After(latest.ModTime()) || info.ModTime().Equal(latest.ModTime()) && name > latest.Name() {
			path, latest = filepath.Join(dir, name), info
		}
	}
	switch {
	case latest == nil && pattern != "":
		return "", fmt.Errorf("%w: no file in %s is called %s", ErrNotYet, dir, pattern)
	case latest == nil:
		return "", fmt.Errorf("%w: there is no file in %s", ErrNotYet, dir)
	}
	return path, nil
}
