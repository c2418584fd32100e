package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/client"
)

// Options are the optional settings of a [File].
type Options struct {
	// Keep is how long an operation is kept after its end. For so long a second call for it
	// gets its answer; after that it would be a new operation. Default: 30 days.
	Keep time.Duration
	// ReadOnly opens the journal for a look at it, also while another process uses it.
	// Nothing can be stored.
	ReadOnly bool
}

// ErrLocked is returned for a journal that another process, or this one, has open.
var ErrLocked = errors.New("the journal is in use")

// A File is a journal in one file, to which is only appended. One process at a time has it
// open; a file beside it, with the ending .lock, sees to that. All its operations are in
// memory too.
type File struct {
	path   string
	keep   time.Duration
	locked *os.File // nil if it is read-only
	sync   func(*os.File) error

	// turn is held by the caller that writes. It guards the fields up to mu.
	turn    sync.Mutex
	file    *os.File
	size    int64     // of the whole lines
	expired time.Time // when operations that are over were last removed

	// mu is held for moments only. What it guards is what is durable, except for next and
	// changing.
	mu       sync.Mutex
	entries  map[string]*entry
	order    []*entry          // in the order of their beginning
	garbage  int64             // bytes of records that no longer count
	next     *batch            // what the next write will make durable
	changing map[string]*batch // writes by which operations begin or are removed
	broken   error             // it is not known what is in the file, so nothing is stored any more
}

var _ client.Journal = (*File)(nil)

// An entry is an operation and the size of its records.
type entry struct {
	op    client.Operation
	size  int64
	found bool // another call may be sending it; after a restart every call has found it
	gone  bool
}

// Open opens the journal in a file, and creates it if there is none. A second process that
// opens it gets [ErrLocked]. If a process or machine died while it wrote, the last line may be
// torn; it is removed: what is in it was never sent, or its answer will be asked for again. Any
// other damage is an error, and the file stays as it is.
func Open(path string, o *Options) (*File, error) {
	if o == nil {
		o = new(Options)
	}
	if o.Keep < 0 {
		return nil, errors.New("journal: Options.Keep is negative; leave it out for the default of 30 days")
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // compaction replaces the file, not a link to it
	}
	f := &File{path: path, keep: o.Keep, sync: (*os.File).Sync, entries: make(map[string]*entry), changing: make(map[string]*batch)}
	if f.keep == 0 {
		f.keep = 30 * 24 * time.Hour
	}
	if o.ReadOnly {
		if err := f.readOnly(); err != nil {
			return nil, fmt.Errorf("journal: open %s: %w", path, err)
		}
		return f, nil
	}
	locked, err := lock(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("journal: open %s: %w", path, err)
	}
	f.locked = locked
	if err := f.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: open %s: %w", path, err), f.Close())
	}
	return f, nil
}

// Close gives the journal up. It waits for a write that is under way.
func (f *File) Close() error {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == nil {
		f.broken = fmt.Errorf("journal %s: %w", f.path, os.ErrClosed)
	}
	var err error
	if f.file != nil {
		err = f.file.Close()
		f.file = nil
	}
	if f.locked != nil {
		err = errors.Join(err, unlock(f.locked))
		f.locked = nil
	}
	return err
}

// Begin implements [client.Journal].
func (f *File) Begin(ctx context.Context, op client.Operation) (client.Operation, bool, error) {
	if op.ID == "" {
		return op, false, errors.New("journal: the operation has no ID")
	}
	for {
		if ctx.Err() != nil {
			return op, false, context.Cause(ctx)
		}
		f.mu.Lock()
		if other := f.changing[op.ID]; other != nil {
			f.mu.Unlock()
			_ = f.flush(other) // whether it fails or not, the next look tells what is there
			continue
		}
		if e, ok := f.entries[op.ID]; ok {
			defer f.mu.Unlock()
			e.found = true
			return e.op, true, nil
		}
		b, err := f.add(record{Begin: &op})
		if err == nil {
			f.changing[op.ID] = b
		}
		f.mu.Unlock()
		if err == nil {
			err = f.flush(b)
		}
		return op, false, err
	}
}

// End implements [client.Journal].
func (f *File) End(_ context.Context, op client.Operation) error {
	f.mu.Lock()
	found, ok := f.entries[op.ID]
	if !ok || !isSame(&found.op, &op) || !found.op.Unfinished() {
		f.mu.Unlock()
		return nil
	}
	b, err := f.add(record{End: &ending{op.ID, op.Answer, op.Abandoned, op.Ended, op.Expires}})
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.flush(b)
}

// Release implements [client.Journal].
func (f *File) Release(_ context.Context, op client.Operation) (bool, error) {
	f.mu.Lock()
	e, ok := f.entries[op.ID]
	if !ok || e.found || !isSame(&e.op, &op) || !e.op.Unfinished() {
		f.mu.Unlock()
		return false, nil
	}
	err := f.removal(op.ID)
	return err == nil, err
}

// Forget removes an operation, whatever its state. A later call for it is a new operation.
func (f *File) Forget(_ context.Context, id string) error {
	f.mu.Lock()
	if _, ok := f.entries[id]; !ok {
		f.mu.Unlock()
		return nil
	}
	return f.removal(id)
}

// removal makes it durable that an operation is gone. The caller holds f.mu, which removal
// releases.
func (f *File) removal(id string) error {
	b, err := f.add(record{Forget: id})
	if err == nil {
		f.changing[id] = b
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.flush(b)
}

// isSame reports whether two operations with one ID are one: it may have been forgotten, and
// begun anew.
func isSame(a, b *client.Operation) bool { return a.Key == b.Key && a.Begun.Equal(b.Begun) }

// Operations implements [client.Journal].
func (f *File) Operations(context.Context) ([]client.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, f.broken
	}
	all := make([]client.Operation, 0, len(f.entries))
	for _, e := range f.order {
		if !e.gone {
			all = append(all, e.op)
		}
	}
	return all, nil
}

// apply changes the memory as a durable record says. Size is that of the record in the file.
// The caller holds f.mu.
func (f *File) apply(r *record, size int64) error {
	switch {
	case r.Begin != nil:
		if _, ok := f.entries[r.Begin.ID]; ok {
			return fmt.Errorf("operation %q begins twice", r.Begin.ID)
		}
		e := &entry{op: *r.Begin, size: size}
		f.entries[e.op.ID] = e
		f.order = append(f.order, e)
	case r.End != nil:
		e, ok := f.entries[r.End.ID]
		if !ok || !e.op.Unfinished() { // two callers have ended it, or one has forgotten it
			f.garbage += size
			break
		}
		e.op.Answer, e.op.Abandoned, e.op.Ended, e.op.Expires = r.End.Answer, r.End.Abandoned, r.End.Ended, r.End.Expires
		e.size += size
	case r.Forget != "":
		if e, ok := f.entries[r.Forget]; ok {
			f.remove(e)
		}
		f.garbage += size
	default:
		return errors.New("a record says nothing; is the journal of a newer version?")
	}
	return nil
}

func (f *File) remove(e *entry) {
	e.gone = true
	f.garbage += e.size
	delete(f.entries, e.op.ID)
}
