package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// load reads the file, and removes a torn last line.
func (f *File) load() error {
	_, err := os.Stat(f.path)
	created := errors.Is(err, os.ErrNotExist)
	if f.file, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	text, err := io.ReadAll(f.file)
	if err != nil {
		return err
	}
	whole, err := f.read(text)
	if err != nil {
		return err
	}
	if whole < len(text) {
		if err := f.file.Truncate(int64(whole)); err != nil {
			return fmt.Errorf("remove the torn last line: %w", err)
		}
	}
	if whole == 0 {
		if _, err := f.file.WriteAt([]byte(heading), 0); err != nil {
			return err
		}
		whole = len(heading)
	}
	f.size = int64(whole)
	if err := f.sync(f.file); err != nil {
		return err
	}
	if created {
		if err := syncDir(filepath.Dir(f.path)); err != nil {
			return fmt.Errorf("sync its directory: %w", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compactIfWorth(time.Now())
	return nil
}

// readOnly reads the file without changing it.
func (f *File) readOnly() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	_, err = f.read(text)
	return err
}

// read applies all lines of a journal. It returns how long the whole lines are.
func (f *File) read(text []byte) (int, error) {
	if len(text) < len(heading) && bytes.HasPrefix([]byte(heading), text) {
		return 0, nil // it was being created
	}
	if !bytes.HasPrefix(text, []byte(heading)) {
		if bytes.HasPrefix(text, []byte("retrysafe journal ")) {
			return 0, errors.New("it was written by a newer version of retrysafe; use that one")
		}
		return 0, errors.New("it is not a journal of retrysafe; choose another file")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := len(heading)
	for number := 2; at < len(text); number++ {
		line, _, ended := bytes.Cut(text[at:], []byte("\n"))
		records, err := decodeLine(line)
		if !ended || errors.Is(err, errTorn) && (at+len(line)+1 == len(text) || zero(text[at:])) {
			// A line that is torn was never durable, so nothing in it was sent. One that is
			// whole, with something other than its end behind it, is no torn line.
			if whole := wholePart(line); whole == 0 || zero(text[at+whole:]) {
				return at, nil
			}
			err = errTorn
		}
		if err != nil {
			return 0, fmt.Errorf("line %d: %w; the file is damaged: restore it, or move it away and look up its unfinished operations in the API's own lists", number, err)
		}
		for i := range records {
			if err := f.apply(&records[i], int64(len(line)+1)/int64(len(records))); err != nil {
				return 0, fmt.Errorf("line %d: %w", number, err)
			}
		}
		at += len(line) + 1
	}
	return at, nil
}

func zero(text []byte) bool { return len(bytes.Trim(text, "\x00")) == 0 }
