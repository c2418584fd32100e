package retrysafe

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe/internal/fields"
)

// A Note says what was done to a record outside its own attempts, by whom and on
// what evidence. It is written in the very step that did it.
type Note struct {
	// At is when the record was read that the note is about, by the store's clock.
	At time.Time
	// By is who did it: "sweeper", "resolver stripe", "operator anna".
	By string
	// State is what the record became.
	State State
	// Text is the evidence, for people.
	Text string
}

// maxNotes is how many notes a record keeps: the first and the latest.
const maxNotes = 32

// Noted returns r with a note of what it becomes. It is for those who swap a
// record that is not their own attempt's.
func (r Record) Noted(by, text string) Record {
	notes := slices.Clone(r.Inquiry.Notes)
	if len(notes) >= maxNotes {
		notes = slices.Delete(notes, 1, len(notes)-maxNotes+2)
	}
	r.Inquiry.Notes = append(notes, Note{At: r.ReadAt, By: by, State: r.State, Text: clean(text)})
	return r
}

// An Inquiry is how far the search for an unknown outcome has come.
type Inquiry struct {
	// Tries is how many questions of a reconciler left the outcome unknown. Evidence
	// that came unasked, from a webhook or a message's delivery, is not counted.
	Tries int
	// Dead says that nobody will be asked again: it is left to an operator.
	Dead bool
	// Disputed says that evidence contradicts the record: no other evidence settles
	// it, only an operator does.
	Disputed bool
	// Notes are what was done and found out, the oldest first.
	Notes []Note
}

// IsZero reports whether nobody has looked into the record.
func (q *Inquiry) IsZero() bool { return q.Tries == 0 && !q.Dead && !q.Disputed && len(q.Notes) == 0 }

// AppendInquiry appends the encoding of q to b: nothing if it is zero.
func AppendInquiry(b []byte, q *Inquiry) []byte {
	if q.IsZero() {
		return b
	}
	tries := uint64(max(q.Tries, 0)) << 2
	if q.Dead {
		tries |= 1
	}
	if q.Disputed {
		tries |= 2
	}
	b = binary.AppendUvarint(b, tries)
	b = binary.AppendUvarint(b, uint64(len(q.Notes)))
	for i := range q.Notes {
		n := &q.Notes[i]
		b = append(binary.AppendVarint(b, micros(n.At)), byte(n.State))
		b = fields.Append(fields.Append(b, n.By), n.Text)
	}
	return b
}

// DecodeInquiry is the inverse of [AppendInquiry].
func DecodeInquiry(b []byte) (q Inquiry, err error) {
	if len(b) == 0 {
		return q, nil
	}
	d := fields.Reader{Rest: b}
	tries := d.Uvarint()
	q.Tries, q.Dead, q.Disputed = int(tries>>2), tries&1 != 0, tries&2 != 0
	if n := d.Count(); n > 0 {
		q.Notes = make([]Note, n)
	}
	for i := range q.Notes {
		at, state := fromMicros(d.Varint()), State(d.Byte())
		q.Notes[i] = Note{At: at, State: state, By: string(d.Bytes()), Text: string(d.Bytes())}
	}
	if d.Bad || len(d.Rest) != 0 {
		return Inquiry{}, fmt.Errorf("%w: its notes do not add up", ErrUnreadable)
	}
	return q, nil
}
