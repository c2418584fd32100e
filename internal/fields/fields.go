// Package fields encodes and decodes a sequence of fields: numbers as varints, texts
// and bytes after their length.
package fields

import "encoding/binary"

// Append appends the length of p and then p.
func Append[T string | []byte](b []byte, p T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(p))), p...)
}

// AppendOptional is Append that distinguishes nil from empty.
func AppendOptional(b, p []byte) []byte {
	if p == nil {
		return append(b, 0)
	}
	return Append(append(b, 1), p)
}

// A Reader reads fields from the front of Rest. After the first that is missing, Bad is
// set and every field is zero. What it returns shares memory with Rest.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Take reads n bytes as they are.
func (r *Reader) Take(n uint64) []byte {
	if r.Bad || n > uint64(len(r.Rest)) {
		r.Bad = true
		return nil
	}
	p := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return p
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if p := r.Take(1); p != nil {
		return p[0]
	}
	return 0
}

// Uvarint reads a number that [binary.AppendUvarint] wrote.
func (r *Reader) Uvarint() uint64 {
	n, size := binary.Uvarint(r.Rest)
	if r.Bad || size <= 0 {
		r.Bad = true
		return 0
	}
	r.Rest = r.Rest[size:]
	return n
}

// Varint reads a number that [binary.AppendVarint] wrote.
func (r *Reader) Varint() int64 {
	n := r.Uvarint()
	if n&1 != 0 {
		return ^int64(n >> 1)
	}
	return int64(n >> 1)
}

// Bytes reads what [Append] wrote.
func (r *Reader) Bytes() []byte { return r.Take(r.Uvarint()) }

// Optional reads what [AppendOptional] wrote.
func (r *Reader) Optional() []byte {
	if r.Byte() == 0 {
		return nil
	}
	return r.Bytes()
}

// Count reads the number of items that follow, each at least one byte long. A damaged
// count cannot ask for more memory than there are bytes.
func (r *Reader) Count() int {
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		r.Bad = true
		return 0
	}
	return int(n)
}
