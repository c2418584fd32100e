package ledger

import (
	"iter"
	"time"
)

// An Entry is one row of a list: one payment, as one side knows it.
type Entry struct {
	// ID is what both sides call the payment: our key, or the provider's reference. It is never empty.
	ID string
	// Time is when the payment was booked, if the list says so.
	Time time.Time
	// Fields are what both sides must agree on, by name: amount, currency, status. A field that is not there is the
	// same as an empty one.
	Fields map[string]string
	// Line is the line of the row in its file, for messages; 0 if it is from no file.
	Line int
	// Record names the record that a row of ours was read from, as commands take it: scope and key. It is shown and
	// not compared.
	Record string
	// Unknown is set if the list has the payment and does not know how it ended: it is the state of the record. Such a
	// row is reported as unknown, never as missing or different.
	Unknown string
	// Unidentified says that the row has no id that the other side could know. ID is then a name for people, and the
	// row is reported without being compared.
	Unidentified bool
}

// A Source yields the entries of one side, in any order. A source that fails yields the error and ends. It does not
// change an entry that it has yielded.
type Source = iter.Seq2[Entry, error]

// Of returns a source of these entries.
func Of(entries ...Entry) Source {
	return func(yield func(Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// sourceOf makes a source of a function that calls each with every entry until each returns false.
func sourceOf(read func(each func(Entry) bool) error) Source {
	return func(yield func(Entry, error) bool) {
		if err := read(func(e Entry) bool { return yield(e, nil) }); err != nil {
			yield(Entry{}, err)
		}
	}
}
