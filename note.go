package retrysafe

import (
	"slices"
	"time"
)

// A Note says what was done to a record outside its own attempts, its author and the
// evidence. It is written in the very step that did it.
type Note struct {
	// At is when the record was read that the note is about, by the store's clock.
	At time.Time
	// By is the author: "sweeper", "resolver stripe", "operator anna".
	By string
	// State is what the record became.
	State State
	// Text is the evidence, for people.
	Text string
	// ID identifies the action that wrote the note, for programs. A sweeper's or a
	// resolver's note has none. It has no control characters.
	ID string
}

// maxNotes is how many notes a record keeps: the first and the latest.
const maxNotes = 32

// AddNote adds a note of what the record becomes: it sets the note's At and State. It
// is for a write that is not one of the record's own attempt.
func (r *Record) AddNote(n Note) {
	notes := slices.Clone(r.Inquiry.Notes)
	if len(notes) >= maxNotes {
		notes = slices.Delete(notes, 1, len(notes)-maxNotes+2)
	}
	n.At, n.State, n.Text = r.ReadAt, r.State, clean(n.Text)
	r.Inquiry.Notes = append(notes, n)
}

// An Inquiry is how far the search for an unknown outcome has come.
type Inquiry struct {
	// Tries is how many questions of a reconciler left the outcome unknown. Evidence
	// that came unasked, from a webhook or a message's delivery, is not counted.
	Tries int
	// Dead says that no resolver is asked again: an operator has to resolve it.
	Dead bool
	// Disputed says that evidence contradicts the record: no other evidence settles
	// it, only an operator does.
	Disputed bool
	// Notes are what was done and found out, the oldest first.
	Notes []Note
}

// IsZero reports whether the record was never looked into.
func (q *Inquiry) IsZero() bool { return q.Tries == 0 && !q.Dead && !q.Disputed && len(q.Notes) == 0 }
