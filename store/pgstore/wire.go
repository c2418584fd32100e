package pgstore

import "encoding/binary"

// The wire format of parameters and results: PostgreSQL's binary format. Arrays are
// written by hand, with one allocation for a whole batch and no reflection.

// The object ids of the types that our statements use.
const (
	oidBytea, oidInt8, oidInt2, oidInt4, oidUUID             = 17, 20, 21, 23, 2950
	oidByteas, oidInt8s, oidInt2s, oidInt4s, oidUUIDs uint32 = 1001, 1016, 1005, 1007, 2951
	oidBool                                                  = 16
	arrayHeader                                              = 20
)

// arrays are the parameters of one statement, column by column.
type arrays struct {
	buf  []byte
	ends []int
	n    int
}

// reset begins a statement over n rows.
func (a *arrays) reset(n int) { a.buf, a.ends, a.n = a.buf[:0], a.ends[:0], n }

// column begins the next array.
func (a *arrays) column(elem uint32) {
	for _, v := range [...]uint32{1, 0, elem, uint32(a.n), 1} { // dimensions, no nulls, type, length, first index
		a.buf = binary.BigEndian.AppendUint32(a.buf, v)
	}
}

// end ends the array.
func (a *arrays) end() { a.ends = append(a.ends, len(a.buf)) }

func (a *arrays) uuid(v [16]byte) {
	a.buf = append(binary.BigEndian.AppendUint32(a.buf, 16), v[:]...)
}

func (a *arrays) int8(v int64) {
	a.buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(a.buf, 8), uint64(v))
}

func (a *arrays) int4(v int32) {
	a.buf = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(a.buf, 4), uint32(v))
}

func (a *arrays) int2(v int16) {
	a.buf = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(a.buf, 2), uint16(v))
}

// bytes adds an element that write appends.
func (a *arrays) bytes(write func(b []byte) []byte) {
	at := len(a.buf)
	a.buf = write(append(a.buf, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(a.buf[at:], uint32(len(a.buf)-at-4))
}

// params returns the arrays, each by itself. They are valid until the next reset.
func (a *arrays) params() [][]byte {
	params := make([][]byte, len(a.ends))
	at := 0
	for i, end := range a.ends {
		params[i], at = a.buf[at:end:end], end
	}
	return params
}

// scalars returns the only element of each array.
func (a *arrays) scalars() [][]byte {
	params := a.params()
	for i, p := range params {
		params[i] = p[arrayHeader+4:]
	}
	return params
}

// A step is one element of an array of the composite type retrysafe_step.
type step struct {
	id, owner                  [16]byte
	lock, revision, term, late int64
	bucket                     int32
	state                      int16
	head, tail, checkpoint     func(b []byte) []byte
}

// steps writes n steps as one array and returns it as the only parameter.
func (a *arrays) steps(stepType uint32, n int, at func(i int) step) [][]byte {
	a.reset(n)
	a.column(stepType)
	for i := range n {
		s := at(i)
		a.bytes(func(b []byte) []byte {
			a.buf = binary.BigEndian.AppendUint32(b, 11) // fields, each behind its type
			a.of(oidUUID).uuid(s.id)
			a.of(oidUUID).uuid(s.owner)
			a.of(oidInt8).int8(s.lock)
			a.of(oidInt8).int8(s.revision)
			a.of(oidInt8).int8(s.term)
			a.of(oidInt4).int4(s.bucket)
			a.of(oidInt8).int8(s.late)
			a.of(oidInt2).int2(s.state)
			for _, write := range [...]func([]byte) []byte{s.head, s.tail, s.checkpoint} {
				if write == nil {
					write = nothing
				}
				a.of(oidBytea).bytes(write)
			}
			return a.buf
		})
	}
	a.end()
	return a.params()
}

func nothing(b []byte) []byte { return b }

// of begins a field of a step.
func (a *arrays) of(oid uint32) *arrays {
	a.buf = binary.BigEndian.AppendUint32(a.buf, oid)
	return a
}

func int8Param(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
func int4Param(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
func boolParam(v bool) []byte  { return []byte{bitIf(1, v)} }

// The columns of a result, in binary.

func int8At(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }
func int4At(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }
func boolAt(b []byte) bool  { return len(b) == 1 && b[0] == 1 }
func int2At(b []byte) int16 { return int16(binary.BigEndian.Uint16(b)) }

// scanRow reads a row that was selected with {columns}. It copies what it keeps: the
// values are valid only until the next row is read.
func scanRow(v [][]byte) (w row) {
	copy(w.id[:], v[0])
	copy(w.owner[:], v[1])
	w.revision, w.deadline, w.created, w.state = int8At(v[2]), int8At(v[3]), int8At(v[4]), int2At(v[5])
	all := make([]byte, 0, len(v[6])+len(v[7])+len(v[8]))
	all = append(append(append(all, v[6]...), v[7]...), v[8]...)
	h, t := len(v[6]), len(v[6])+len(v[7])
	w.head, w.tail, w.checkpoint = all[:h:h], all[h:t:t], all[t:]
	w.now = int8At(v[9])
	return w
}
