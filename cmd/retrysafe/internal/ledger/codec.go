package ledger

import (
	"encoding/binary"
	"errors"
	"time"
)

// appendDetails appends what is kept of e beside its id: the line, the time, the record, its state and the fields,
// each text behind its length.
func appendDetails(b []byte, e *Entry) []byte {
	b = binary.AppendVarint(b, int64(e.Line))
	if e.Time.IsZero() {
		b = append(b, 0)
	} else {
		b = binary.AppendVarint(append(b, 1), e.Time.Unix())
		b = binary.AppendUvarint(b, uint64(e.Time.Nanosecond()))
	}
	b = appendText(appendText(b, e.Record), e.Unknown)
	b = binary.AppendUvarint(b, uint64(len(e.Fields)))
	for name, text := range e.Fields {
		b = appendText(appendText(b, name), text)
	}
	return b
}

// appendCompared appends the fields in a form that has the same bytes exactly if two rows agree: in the order of their
// names, which names has, without those that are empty, and amounts by their value.
func (o *Options) appendCompared(b []byte, names []string, fields map[string]string) []byte {
	for _, name := range names {
		text := fields[name]
		if text == "" {
			continue
		}
		b = appendText(b, name)
		if d, ok := o.amount(name, text); ok {
			b = d.append(append(b, 1))
		} else {
			b = appendText(append(b, 0), text)
		}
	}
	return b
}

// appendUnknown appends what no row with fields has, so that a row whose outcome is unknown agrees with none.
func appendUnknown(b []byte) []byte { return append(b, 0, 'u') }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errDamaged = errors.New("a row has changed on disk")

// decodeEntry returns the entry with this id and these details. It shares nothing with details.
func decodeEntry(id string, details []byte) (Entry, error) {
	d := decoder{b: details, s: string(details)}
	e := Entry{ID: id, Line: int(d.varint())}
	if d.uvarint() != 0 {
		seconds := d.varint()
		e.Time = time.Unix(seconds, int64(d.uvarint())).UTC()
	}
	e.Record, e.Unknown = d.text(), d.text()
	if n := d.uvarint(); n > 0 && n <= uint64(len(details)) {
		e.Fields = make(map[string]string, n)
		for range n {
			name := d.text()
			e.Fields[name] = d.text()
		}
	}
	if d.bad || d.at != len(details) {
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
