package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A batch is the records of one write, and how it ended.
type batch struct {
	records []record
	done    bool
	err     error
}

// add puts a record into the next write. The caller holds f.mu.
func (f *File) add(r record) (*batch, error) {
	switch {
	case f.broken != nil:
		return nil, f.broken
	case f.locked == nil:
		return nil, fmt.Errorf("journal %s: it was opened read-only", f.path)
	case f.next == nil:
		f.next = new(batch)
	}
	f.next.records = append(f.next.records, r)
	return f.next, nil
}

// flush returns when the batch is durable, or has failed. The first caller that gets its turn
// writes for all that are in the batch.
func (f *File) flush(b *batch) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.done {
		return b.err
	}
	f.next = nil
	if b.err = f.broken; b.err == nil {
		f.mu.Unlock()
		size, err := f.append(b.records)
		f.mu.Lock()
		b.err = err
		for i := range b.records {
			if err == nil {
				b.err = errors.Join(b.err, f.apply(&b.records[i], size/int64(len(b.records))))
			}
		}
	}
	b.done = true
	for i := range b.records {
		switch r := &b.records[i]; {
		case r.Begin != nil:
			delete(f.changing, r.Begin.ID)
		case r.Forget != "":
			delete(f.changing, r.Forget)
		}
	}
	if b.err == nil {
		f.compactIfWorth(time.Now())
	}
	return b.err
}

// append writes a line and makes it durable. The caller has the turn.
func (f *File) append(records []record) (int64, error) {
	line, err := encodeLine(records)
	if err != nil {
		return 0, fmt.Errorf("journal %s: %w", f.path, err)
	}
	if _, err := f.file.WriteAt(line, f.size); err != nil { // the disk is full, perhaps
		if undo := f.file.Truncate(f.size); undo != nil {
			f.giveUp(undo)
		}
		return 0, fmt.Errorf("journal %s: write: %w", f.path, err)
	}
	if err := f.sync(f.file); err != nil {
		// What is on the disk is not known, and asking again does not tell.
		f.giveUp(err)
		return 0, fmt.Errorf("journal %s: sync: %w", f.path, err)
	}
	f.size += int64(len(line))
	return int64(len(line)), nil
}

// giveUp lets all further calls fail, until the journal is opened again.
func (f *File) giveUp(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = fmt.Errorf("journal %s: an earlier write failed: %w; open the journal again", f.path, err)
}

const (
	leastGarbage = 1 << 20
	expireEvery  = time.Hour
)

// compactIfWorth removes operations that are over for long, and writes the file anew if most
// of it does not count any more. If that fails, the file stays as it is. The caller has the
// turn and holds f.mu.
func (f *File) compactIfWorth(now time.Time) {
	if now.Sub(f.expired) >= expireEvery {
		f.expired = now
		for _, e := range f.order {
			if !e.gone && !e.op.Unfinished() && now.Sub(e.op.Ended) > f.keep {
				f.remove(e)
			}
		}
	}
	if f.garbage < leastGarbage || f.garbage < f.size/2 {
		return
	}
	f.order = slices.DeleteFunc(f.order, func(e *entry) bool { return e.gone })
	if err := f.compact(); err != nil {
		f.garbage = 0 // and again when there is as much more of it
	}
}

// compact replaces the file by one that has only what counts. Until the new file has the old
// one's name, the old one is the journal.
func (f *File) compact() (err error) {
	fresh, err := os.OpenFile(f.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = fresh.Close()
			_ = os.Remove(fresh.Name())
		}
	}()
	size, sizes := int64(len(heading)), make([]int64, len(f.order))
	if _, err := fresh.WriteString(heading); err != nil {
		return err
	}
	for i, e := range f.order {
		begun := e.op
		begun.Answer, begun.Abandoned = nil, ""
		records := []record{{Begin: &begun}}
		if !e.op.Unfinished() {
			records = append(records, record{End: &ending{e.op.ID, e.op.Answer, e.op.Abandoned, e.op.Ended, e.op.Expires}})
		}
		line, err := encodeLine(records)
		if err != nil {
			return err
		}
		if _, err := fresh.Write(line); err != nil {
			return err
		}
		sizes[i] = int64(len(line))
		size += sizes[i]
	}
	if err := f.sync(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh.Name(), f.path); err != nil {
		return err
	}
	_ = f.file.Close() // it has no name any more
	f.file, f.size, f.garbage = fresh, size, 0
	for i, e := range f.order {
		e.size = sizes[i]
	}
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		// After a power failure the name may lead to the old file, without what comes next.
		f.broken = fmt.Errorf("journal %s: sync its directory: %w; open the journal again", f.path, err)
	}
	return nil
}

// syncDir makes names in a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = ignoreUnsupported(d.Sync())
	return errors.Join(err, d.Close())
}
