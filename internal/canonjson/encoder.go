package canonjson

import (
	"errors"
	"slices"
)

// MaxDepth is the number of arrays and objects that may be open at once.
const MaxDepth = 256

// An Encoder holds the memory that encoding needs, so that once it has grown nothing is allocated. The memory is a
// multiple of the largest text seen. The zero value is ready to use. An Encoder is not safe for concurrent use.
type Encoder struct {
	in      []byte        // the text and padding
	members []member      // of the open objects, those of the innermost last
	bases   [MaxDepth]int // where in members those of the containers around the innermost start
	keys    []uint64      // for sorting
	moved   []byte        // members on their way to their places
	records []record      // the objects that are put in order at the end
	spans   []span        // their members
	digits  []byte        // of a number

	whole  []byte  // the canonical form before filtering
	active []int32 // the nodes of the filter reached by the value at hand and those around it
}

// Append appends the canonical form of src to dst. With f not nil only what the filter selects is appended; the rest must
// be valid all the same. src is not changed, and dst must not overlap it. On error nothing is appended.
//
// Append uses the room behind dst for as many bytes as src has and some more, also if the canonical form is shorter,
// and allocates if dst has not that much.
func (e *Encoder) Append(dst, src []byte, f *Filter) ([]byte, error) {
	if f == nil || len(f.nodes) == 0 {
		return e.append(dst, src)
	}
	var err error
	if e.whole, err = e.append(e.whole[:0], src); err != nil {
		return dst, err
	}
	e.whole = append(e.whole, padding...)
	return f.prune(dst, e), nil
}

// append is Append without a filter.
func (e *Encoder) append(dst, src []byte) ([]byte, error) {
	e.in = append(append(e.in[:0], src...), padding...)
	out := slices.Grow(dst, len(e.in)+slack)
	n, err := e.parse(e.in, out[:cap(out)], len(dst))
	if errors.Is(err, errShort) { // only numbers can grow; the second time there is room for the worst of them
		out = slices.Grow(dst, growth*len(e.in)+slack)
		n, err = e.parse(e.in, out[:cap(out)], len(dst))
	}
	if err != nil {
		return out[:len(dst)], err
	}
	if len(e.records) > 0 {
		e.moveRecorded(out[:n], span{len(dst), n})
	}
	return out[:n], nil
}

const (
	// padding follows the text in e.in. A zero byte is an error at every position, so
	// no loop needs to check for the end of the text, and words may be loaded at any
	// position.
	padding = "\x00\x00\x00\x00\x00\x00\x00\x00"

	// slack is the room that out has beyond the canonical form, so that blocks may be copied whole.
	slack = blockSize

	// growth bounds how much longer a number may become: 1e20 has four bytes and becomes 21.
	growth = 6
)
