package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

// rows yields encoded rows in order. A row is good until the next.
type rows = iter.Seq2[[]byte, error]

// A spill is a temporary file of runs: rows in order, each behind its length. The runs are in the order in which their
// rows came.
type spill struct {
	options *SortOptions
	file    *os.File
	named   bool // the file has its name still, and must lose it
	size    int64
	runs    []span
}

func newSpill(o *SortOptions) (*spill, error) {
	f, err := os.CreateTemp(o.Dir, "ledger-sort-*")
	if err != nil {
		return nil, fmt.Errorf("sort: %w", err)
	}
	// Without a name the file is gone even if the process is killed. Not every system does that to an open file.
	return &spill{options: o, file: f, named: os.Remove(f.Name()) != nil}, nil
}

// close removes the file. A nil spill has none.
func (s *spill) close() {
	if s == nil {
		return
	}
	_ = s.file.Close() // it was only ever ours, and nobody reads it again
	if s.named {
		_ = os.Remove(s.file.Name())
	}
}

// buffer is how much of a run is read at once, and fanIn how many runs are merged at once: together the memory.
func (o *SortOptions) buffer() int { return min(max(o.Memory/16, 4<<10), 64<<10) }
func (o *SortOptions) fanIn() int  { return o.Memory / o.buffer() }

// write adds a run.
func (s *spill) write(from rows) error {
	w := bufio.NewWriterSize(s.file, s.options.buffer())
	at := s.size
	var length [binary.MaxVarintLen64]byte
	for row, err := range from {
		if err != nil {
			return err
		}
		n := binary.PutUvarint(length[:], uint64(len(row)))
		if s.size += int64(n + len(row)); s.size > s.options.Disk {
			return fmt.Errorf("sort: %w: more than %d bytes of rows", ErrTooLarge, s.options.Disk)
		}
		_, _ = w.Write(length[:n]) // Flush returns the first error
		_, _ = w.Write(row)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sort: %w", err)
	}
	s.runs = append(s.runs, span{at, s.size})
	return nil
}

// merged returns a spill of fewer runs, of as many of this one each as can be merged at once. It is to be closed
// also if there is an error.
func (s *spill) merged(ctx context.Context) (*spill, error) {
	next, err := newSpill(s.options)
	if err != nil {
		return nil, err
	}
	for group := range slices.Chunk(s.runs, s.options.fanIn()) {
		if err := next.write(s.merge(ctx, group)); err != nil {
			return next, err
		}
	}
	return next, nil
}

// merge yields the rows of several runs in order.
func (s *spill) merge(ctx context.Context, runs []span) rows {
	return func(yield func([]byte, error) bool) {
		var h front
		for i, r := range runs {
			section := io.NewSectionReader(s.file, r.at, r.end-r.at)
			c := &cursor{place: i, length: section.Size(), r: bufio.NewReaderSize(section, s.options.buffer())}
			if more, err := c.next(); err != nil {
				yield(nil, err)
				return
			} else if more {
				h = append(h, c)
			}
		}
		heap.Init(&h)
		for len(h) > 0 {
			if err := ctx.Err(); err != nil {
				yield(nil, fmt.Errorf("sort: %w", err))
				return
			}
			if !yield(h[0].row, nil) {
				return
			}
			if more, err := h[0].next(); err != nil {
				yield(nil, err)
				return
			} else if more {
				heap.Fix(&h, 0)
			} else {
				heap.Pop(&h)
			}
		}
	}
}

// A cursor is where the reading of a run has come to.
type cursor struct {
	place  int // of the run among the others
	length int64
	r      *bufio.Reader
	row    []byte
}

func (c *cursor) next() (more bool, err error) {
	n, err := binary.ReadUvarint(c.r)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err == nil && n > uint64(c.length) {
		err = errDamaged
	}
	if err == nil {
		c.row = slices.Grow(c.row[:0], int(n))[:n]
		_, err = io.ReadFull(c.r, c.row)
	}
	if err != nil {
		return false, fmt.Errorf("sort: read a row back: %w", err)
	}
	return true, nil
}

// front is the rows that the runs have come to, the lowest first. Of the same id the earlier run is lower, so that rows
// keep their order.
type front []*cursor

func (f front) Len() int      { return len(f) }
func (f front) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *front) Push(x any)   { *f = append(*f, x.(*cursor)) }
func (f front) Less(i, j int) bool {
	return cmp.Or(bytes.Compare(idOf(f[i].row), idOf(f[j].row)), cmp.Compare(f[i].place, f[j].place)) < 0
}

func (f *front) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}
