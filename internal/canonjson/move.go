package canonjson

import "slices"

const (
	// largeObject is the length from which the members of an object are moved later.
	largeObject = 4 << 10

	// blockSize is the number of bytes that moveSmall copies at once.
	blockSize = 64
)

// swap moves two members of an object that is not large to each other's place.
func (e *Encoder) swap(out []byte, end, first, second int) {
	copy(e.moved, out[first:second-1])
	o := first + copy(out[first:], out[second:end])
	out[o] = ','
	copy(out[o+1:end], e.moved)
}

// moveSmall moves the members of an object that is not large to their places.
func (e *Encoder) moveSmall(out []byte, end int, ms []member, keys []uint64, mask uint64) {
	moved, o := e.moved, 0
	for _, k := range keys {
		k &= mask
		from, to := ms[k].start, ms[k+1].start-1
		n := to - from
		if n <= blockSize { // most are, and for so few bytes eight words are faster than a call
			src, dst := (*[blockSize]byte)(out[from : from+blockSize])[:], (*[blockSize]byte)(moved[o : o+blockSize])[:]
			store(dst, 0, load(src, 0))
			store(dst, 8, load(src, 8))
			store(dst, 16, load(src, 16))
			store(dst, 24, load(src, 24))
			store(dst, 32, load(src, 32))
			store(dst, 40, load(src, 40))
			store(dst, 48, load(src, 48))
			store(dst, 56, load(src, 56))
		} else {
			copy(moved[o:], out[from:to])
		}
		o += n
		moved[o] = ','
		o++
	}
	copy(out[ms[0].start:end], moved)
}

// A span is a part of out.
type span struct{ start, end int }

// A record is a large object whose members have to move.
type record struct {
	span             // of the members
	first, count int // of the members in e.spans, where they are in order
}

// moveLater leaves the members of a large object where they are until the whole text has been read. If they moved at
// once, those of deeply nested objects would move many times over.
func (e *Encoder) moveLater(end int, ms []member, keys []uint64, mask uint64) {
	e.records = append(e.records, record{span{ms[0].start, end}, len(e.spans), len(keys)})
	for _, k := range keys {
		k &= mask
		e.spans = append(e.spans, span{ms[k].start, ms[k+1].start - 1})
	}
}

// moveRecorded moves the members of the recorded objects, all of which are in the given part of out.
func (e *Encoder) moveRecorded(out []byte, part span) {
	slices.SortFunc(e.records, func(a, b record) int { return a.start - b.start })
	e.moved = e.appendSpan(e.moved[:0], out, part)
	copy(out[part.start:], e.moved)
	e.moved = e.moved[:cap(e.moved)]
}

// appendSpan appends a part of src to dst with the members of the recorded objects in order. Each byte is appended once. The
// calls are nested no deeper than the text.
func (e *Encoder) appendSpan(dst, src []byte, s span) []byte {
	for {
		// The first record behind the start is not inside another one, unless that contains s.
		k, _ := slices.BinarySearchFunc(e.records, s.start+1, func(r record, start int) int { return r.start - start })
		if k == len(e.records) || e.records[k].start >= s.end {
			return append(dst, src[s.start:s.end]...)
		}
		r := e.records[k]
		dst = append(dst, src[s.start:r.start]...)
		for _, member := range e.spans[r.first : r.first+r.count] {
			dst = append(e.appendSpan(dst, src, member), ',')
		}
		dst = dst[:len(dst)-1] // the last comma
		s.start = r.end
	}
}
