package operator

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
)

// An Action is one click: who does what to which record, as they saw it, and why.
type Action struct {
	// ID is the key of this click: the page draws it once, and sends it with every
	// repetition. Without one the desk draws it, and [Entry.ID] has it.
	ID string
	// By is who does it. Required.
	By string
	// Why is the reason, for whoever reads the audit. Required. It is kept when
	// the record is erased, so it should name nobody.
	Why string
	// Ref is the record. Required.
	Ref retrysafe.Ref
	// Revision is the record's as the person saw it. Required.
	Revision int64
	// ProviderRef is the other side's own name for the effect, if it was found.
	// Resolve and Decline keep it in the record.
	ProviderRef string

	verb string // what is done; the method that was called sets it
}

// Bounds of what a person may write, so that a note holds all of it.
const (
	maxID          = 64
	maxBy          = 100
	maxWhy         = 300
	maxProviderRef = 255
)

// check fills in the ID and reports what is missing.
func (a *Action) check() error {
	if err := who(&a.ID, a.By, a.Why); err != nil {
		return err
	}
	switch {
	case a.Ref.Scope == "" || a.Ref.Key == "":
		return fmt.Errorf("%w: Ref names no record", ErrInvalid)
	case a.Revision <= 0:
		return fmt.Errorf("%w: Revision is that of the record as it was shown", ErrInvalid)
	case len(a.ProviderRef) > maxProviderRef || !plain(a.ProviderRef):
		return fmt.Errorf("%w: ProviderRef is over %d bytes, or no text", ErrInvalid, maxProviderRef)
	}
	return nil
}

// who checks what every action has, and draws an ID if there is none.
func who(id *string, by, why string) error {
	if *id == "" {
		*id = rand.Text()
	}
	bare := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case len(*id) > maxID || strings.ContainsFunc(*id, bare):
		return fmt.Errorf("%w: ID is over %d characters, or not of letters, digits and signs", ErrInvalid, maxID)
	case strings.TrimSpace(by) == "" || len(by) > maxBy || !plain(by):
		return fmt.Errorf("%w: By says who it is, in up to %d bytes", ErrInvalid, maxBy)
	case strings.TrimSpace(why) == "" || len(why) > maxWhy || !plain(why):
		return fmt.Errorf("%w: Why says why, in up to %d bytes", ErrInvalid, maxWhy)
	}
	return nil
}

// plain reports whether s is one line of text.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }

// author is who notes are by.
func (a *Action) author() string { return "operator " + a.By }

// note adds the action's note to what it writes. The note carries the action's ID, so
// that the action recognises its own write.
func (a *Action) note(w *retrysafe.Write, what string) {
	w.AddNote(retrysafe.Note{By: a.author(), Text: what + ": " + a.Why, ID: a.ID})
}

// done returns the note of the action in r, if it is there: then an earlier try
// has done it, whatever its caller was told.
func done(r *retrysafe.Record, by, id string) (retrysafe.Note, bool) {
	for i := len(r.Inquiry.Notes) - 1; i >= 0; i-- {
		if n := r.Inquiry.Notes[i]; n.By == by && n.ID == id {
			return n, true
		}
	}
	return retrysafe.Note{}, false
}

// fingerprint is over all that the action says, and what belongs to its verb.
func (a *Action) fingerprint(verb string, more []byte) retrysafe.Fingerprint {
	return fingerprint(verb, a.By, a.Why, a.Ref.Scope, a.Ref.Key, strconv.FormatInt(a.Revision, 10), a.ProviderRef, string(more))
}

// fingerprint hashes parts behind their lengths: no two lists read the same.
func fingerprint(parts ...string) retrysafe.Fingerprint {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return retrysafe.Fingerprint{Alg: 1, Sum: sha256.Sum256(b)}
}
