package canonjson

import (
	"math/bits"
	"slices"
)

// A member of an open object.
type member struct {
	key   uint64
	start int // of the name, with its quote, in out
	colon int // behind the name
}

// inOrder reports whether members are in order and different.
func inOrder(out []byte, ms []member) bool {
	var down, same uint64 // bit 63: some key is less than the one before, or not greater
	for k := 1; k < len(ms); k++ {
		d := ms[k].key - ms[k-1].key
		down |= d
		same |= d - 1
	}
	if down>>63 != 0 {
		return false
	}
	for k := 1; same>>63 != 0 && k < len(ms); k++ {
		if a, b := &ms[k-1], &ms[k]; a.key == b.key && compareMembers(out, a, b) >= 0 {
			return false
		}
	}
	return true
}

func compareMembers(out []byte, a, b *member) int {
	return compareNames(out[a.start+1:a.colon-1], out[b.start+1:b.colon-1])
}

// reorder sorts the members from base on, the last of which ends at end. Those of a
// small object are moved to their places in out, those of a large one are recorded for
// later. It returns false if two members are equal.
func (e *Encoder) reorder(out []byte, end, base int) bool {
	e.members = append(e.members, member{start: end + 1}) // ends the last member as a next one would
	ms := e.members[base:]
	n := len(ms) - 1
	large := end-ms[0].start > largeObject
	if e.moved == nil {
		e.moved = make([]byte, largeObject+2*blockSize)
	}
	if n == 2 && ms[0].key != ms[1].key && !large {
		e.swap(out, end, ms[0].start, ms[1].start)
		return true
	}
	keys, mask := e.sortKeys(ms[:n])
	for k := 1; k < n; k++ {
		if (keys[k]^keys[k-1])&^mask == 0 {
			if !sortTies(out, ms, keys[k-1:], mask) {
				return false
			}
			break
		}
	}
	if large {
		e.moveLater(end, ms, keys, mask)
	} else {
		e.moveSmall(out, end, ms, keys, mask)
	}
	return true
}

// sortTies sorts the runs of members whose keys are equal but for the bits in mask, which hold their indexes. It returns
// false if two members are equal.
func sortTies(out []byte, ms []member, keys []uint64, mask uint64) bool {
	for len(keys) > 1 {
		n := 1
		for n < len(keys) && (keys[n]^keys[0])&^mask == 0 {
			n++
		}
		run := keys[:n]
		keys = keys[n:]
		if n > longRun {
			slices.SortFunc(run, func(a, b uint64) int { return compareMembers(out, &ms[a&mask], &ms[b&mask]) })
		}
		for k := 1; k < n; k++ {
			for j := k; j > 0; j-- {
				c := compareMembers(out, &ms[run[j-1]&mask], &ms[run[j]&mask])
				if c == 0 {
					return false
				}
				if c < 0 {
					break
				}
				run[j], run[j-1] = run[j-1], run[j]
			}
		}
	}
	return true
}

// longRun is the length up to which sorting by insertion is fastest.
const longRun = 12

// sortKeys returns the keys of ms in order. The low bits of each key, covered by mask,
// are replaced by the index of its member. That makes all keys different, and each a
// single word.
//
// Blocks of eight are sorted in registers and then merged, both without branches that
// depend on the keys: such branches are mispredicted half of the time, which costs more
// than the sorting.
func (e *Encoder) sortKeys(ms []member) (keys []uint64, mask uint64) {
	n := (len(ms) + 7) &^ 7
	if len(e.keys) < 2*n {
		e.keys = make([]uint64, 3*n)
	}
	keys, spare := e.keys[:n], e.keys[n:2*n]
	mask = 1<<bits.Len(uint(len(ms)-1)) - 1
	for i := range ms {
		keys[i] = ms[i].key&^mask | uint64(i)
	}
	for i := len(ms); i < n; i++ {
		keys[i] = ^uint64(0) // greater than all others, so they stay at the end
	}
	for i := 0; i < n; i += 8 {
		sort8((*[8]uint64)(keys[i:]))
	}
	for width := 8; width < n; width *= 2 {
		for i := 0; i < n; i += 2 * width {
			end := min(i+2*width, n)
			merge(spare[i:end], keys[i:end], width)
		}
		keys, spare = spare, keys
	}
	return keys[:len(ms)], mask
}

// merge merges the sorted halves src[:mid] and src[mid:] into dst. The second may be missing.
func merge(dst, src []uint64, mid int) {
	i, j, k := 0, mid, 0
	for i < mid && j < len(src) {
		a, b := src[i], src[j]
		dst[k] = min(a, b)
		k++
		second := 0
		if b < a {
			second = 1
		}
		j += second
		i += 1 - second
	}
	k += copy(dst[k:], src[i:min(mid, len(src))])
	copy(dst[k:], src[min(j, len(src)):])
}

// sort8 sorts with the shortest sorting network there is: 19 comparisons, of which those in a paragraph are independent.
func sort8(p *[8]uint64) {
	a, b, c, d, e, f, g, h := p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]

	a, c = min(a, c), max(a, c)
	b, d = min(b, d), max(b, d)
	e, g = min(e, g), max(e, g)
	f, h = min(f, h), max(f, h)

	a, e = min(a, e), max(a, e)
	b, f = min(b, f), max(b, f)
	c, g = min(c, g), max(c, g)
	d, h = min(d, h), max(d, h)

	a, b = min(a, b), max(a, b)
	c, d = min(c, d), max(c, d)
	e, f = min(e, f), max(e, f)
	g, h = min(g, h), max(g, h)

	c, e = min(c, e), max(c, e)
	d, f = min(d, f), max(d, f)

	b, e = min(b, e), max(b, e)
	d, g = min(d, g), max(d, g)

	b, c = min(b, c), max(b, c)
	d, e = min(d, e), max(d, e)
	f, g = min(f, g), max(f, g)

	p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7] = a, b, c, d, e, f, g, h
}
