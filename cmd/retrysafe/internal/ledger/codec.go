package ledger

import (
	"encoding/binary"
	"errors"
	"time"
)

// appendEntry appends e as it is kept while it is sorted: the id, the line, the time and the fields, each text behind
// its length.
func appendEntry(b []byte, e *Entry) []byte {
	b = appendText(b, e.ID)
	b = binary.AppendVarint(b, int64(e.Line))
	if e.Time.IsZero() {
		b = append(b, 0)
	} else {
		b = binary.AppendVarint(append(b, 1), e.Time.Unix())
		b = binary.AppendUvarint(b, uint64(e.Time.Nanosecond()))
	}
	b = binary.AppendUvarint(b, uint64(len(e.Fields)))
	for name, text := range e.Fields {
		b = appendText(appendText(b, name), text)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// idOf returns the id of an encoded entry; of one that is damaged, nothing, and decodeEntry will say so.
func idOf(row []byte) []byte {
	n, size := binary.Uvarint(row)
	if size <= 0 || n > uint64(len(row)-size) {
		return nil
	}
	return row[size : size+int(n)]
}

var errDamaged = errors.New("a sorted row has changed on disk")

// decodeEntry is the inverse of appendEntry. The entry shares nothing with row.
func decodeEntry(row []byte) (Entry, error) {
	d := decoder{b: row, s: string(row)}
	e := Entry{ID: d.text(), Line: int(d.varint())}
	if d.uvarint() != 0 {
		seconds := d.varint()
		e.Time = time.Unix(seconds, int64(d.uvarint())).UTC()
	}
	if n := d.uvarint(); n > 0 && n <= uint64(len(row)) {
		e.Fields = make(map[string]string, n)
		for range n {
			name := d.text()
			e.Fields[name] = d.text()
		}
	}
	if d.bad || d.at != len(row) {
		return Entry{}, errDamaged
	}
	return e, nil
}

// A decoder reads b from at on. Its texts are parts of s, which is the same as b.
type decoder struct {
	b   []byte
	s   string
	at  int
	bad bool
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.b[d.at:])
	d.bad = d.bad || size <= 0
	d.at += max(size, 0)
	return n
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.b[d.at:])
	d.bad = d.bad || size <= 0
	d.at += max(size, 0)
	return n
}

func (d *decoder) text() string {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.b)-d.at) {
		d.bad = true
		return ""
	}
	start := d.at
	d.at += int(n)
	return d.s[start:d.at]
}
