package ledger

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
)

// SortOptions bound what [Sorted] uses. The zero value is 16 MiB of memory and 8 GiB of disk.
type SortOptions struct {
	// Dir is where rows are kept that do not fit into memory; empty means the default directory for temporary files.
	// The files are readable by their owner only, have no name while they are in use where the system allows that,
	// and are gone when the source ends, whatever ends it.
	Dir string
	// Memory is how many bytes of rows are held at once. Less than 64 KiB is taken as 64 KiB. A single row larger than
	// that is held all the same.
	Memory int
	// Disk is how many bytes of rows are written at most; then the source fails with ErrTooLarge. While they are
	// merged in several rounds, the files may have twice that.
	Disk int64
}

const (
	defaultMemory = 16 << 20
	leastMemory   = 64 << 10
	defaultDisk   = 8 << 30
)

// Sorted returns a source with the rows of another that is in any order, in the order that [Compare] needs. Rows with
// the same id keep their order, and each keeps its line. Nothing is read, and no file made, before it is ranged over.
func Sorted(ctx context.Context, from Source, o *SortOptions) Source {
	s := SortOptions{}
	if o != nil {
		s = *o
	}
	s.Memory = max(cmp.Or(s.Memory, defaultMemory), leastMemory)
	s.Disk = cmp.Or(s.Disk, defaultDisk)
	return source(func(each func(Entry) bool) error { return sortRows(ctx, from, &s, each) })
}

func sortRows(ctx context.Context, from Source, o *SortOptions, each func(Entry) bool) error {
	var disk *spill
	defer func() { disk.close() }()
	b := newBatch(o.Memory)
	var row []byte
	for e, err := range from {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sort: %w", err)
		}
		row = appendEntry(row[:0], &e)
		if b.full(len(row)) {
			if disk == nil {
				if disk, err = newSpill(o); err != nil {
					return err
				}
			}
			if err := disk.write(b.sorted()); err != nil {
				return err
			}
			b.clear()
		}
		b.add(row)
	}

	if disk == nil {
		return handOver(b.sorted(), each)
	}
	if err := disk.write(b.sorted()); err != nil {
		return err
	}
	for len(disk.runs) > o.fanIn() {
		next, err := disk.merged(ctx)
		disk.close()
		if disk = next; err != nil {
			return err
		}
	}
	return handOver(disk.merge(ctx, disk.runs), each)
}

// handOver decodes the rows for each.
func handOver(sorted rows, each func(Entry) bool) error {
	for row, err := range sorted {
		if err != nil {
			return err
		}
		e, err := decodeEntry(row)
		if err != nil {
			return err
		}
		if !each(e) {
			return nil
		}
	}
	return nil
}

// A batch is what is sorted in memory: encoded rows one after the other, and where each is.
type batch struct {
	data  []byte
	rows  []span
	limit int // of data
}

// A span is a part of a batch or of a file.
type span struct{ at, end int64 }

const spanSize = 16

// newBatch allots a fifth of the memory to the places of the rows, which suits rows of 64 bytes and more.
func newBatch(memory int) *batch {
	most := memory / 5 / spanSize
	limit := memory - most*spanSize
	return &batch{data: make([]byte, 0, limit), rows: make([]span, 0, most), limit: limit}
}

// full reports whether n more bytes are too many. An empty batch takes a row of any size.
func (b *batch) full(n int) bool {
	return len(b.rows) > 0 && (len(b.rows) == cap(b.rows) || len(b.data)+n > b.limit)
}

func (b *batch) add(row []byte) {
	at := int64(len(b.data))
	b.data = append(b.data, row...)
	b.rows = append(b.rows, span{at, int64(len(b.data))})
}

func (b *batch) clear() {
	if cap(b.data) > b.limit {
		b.data = make([]byte, 0, b.limit)
	}
	b.data, b.rows = b.data[:0], b.rows[:0]
}

// sorted puts the rows in order of their ids, and those with the same id in the order in which they came.
func (b *batch) sorted() rows {
	return func(yield func([]byte, error) bool) {
		slices.SortFunc(b.rows, func(x, y span) int {
			return cmp.Or(bytes.Compare(idOf(b.data[x.at:x.end]), idOf(b.data[y.at:y.end])), cmp.Compare(x.at, y.at))
		})
		for _, r := range b.rows {
			if !yield(b.data[r.at:r.end], nil) {
				return
			}
		}
	}
}
