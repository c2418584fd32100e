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

// An Action is one action of an operator on one record: its author, its reason, and the
// revision of the record that the author saw.
type Action struct {
	// ID is the idempotency key of this action. The page generates it once and sends it
	// with every repetition. If it is empty the service generates one, which [Entry.ID]
	// returns.
	ID string
	// By is the operator's name. Required.
	By string
	// Why is the reason that the audit shows. Required. It is kept when the record is
	// erased, so it should contain no personal data.
	Why string
	// Ref is the record. Required.
	Ref retrysafe.Ref
	// Revision is the revision of the record that the operator saw. Required.
	Revision int64
	// ProviderRef is the provider's own id of the effect, if it was found. Resolve and
	// Decline store it in the record.
	ProviderRef string
	// Bodiless says that the answer of Resolve or Decline has no body on purpose, although
	// [LacksBody] holds.
	Bodiless bool

	verb string // set by the method that was called
}

// Bounds of an operator's texts, so that a note holds all of them.
const (
	maxID          = 64
	maxBy          = 100
	maxWhy         = 300
	maxProviderRef = 255
)

// check generates a missing ID and reports an invalid field.
func (a *Action) check() error {
	if err := checkAuthor(&a.ID, a.By, a.Why); err != nil {
		return err
	}
	switch {
	case a.Ref.Scope == "" || a.Ref.Key == "":
		return fmt.Errorf("%w: Ref has no scope or no key", ErrInvalid)
	case a.Revision <= 0:
		return fmt.Errorf("%w: Revision must be the revision of the record as it was shown", ErrInvalid)
	case len(a.ProviderRef) > maxProviderRef || !plain(a.ProviderRef):
		return fmt.Errorf("%w: ProviderRef must be one line of text of up to %d bytes", ErrInvalid, maxProviderRef)
	}
	return nil
}

// checkAuthor checks the fields that every action has, and generates a missing ID.
func checkAuthor(id *string, by, why string) error {
	if *id == "" {
		*id = rand.Text()
	}
	bare := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case len(*id) > maxID || strings.ContainsFunc(*id, bare):
		return fmt.Errorf("%w: ID must be printable ASCII without spaces, up to %d characters", ErrInvalid, maxID)
	case strings.TrimSpace(by) == "" || len(by) > maxBy || !plain(by):
		return fmt.Errorf("%w: By must name the operator, in one line of up to %d bytes", ErrInvalid, maxBy)
	case strings.Trim(why, " .") == "" || len(why) > maxWhy || !plain(why):
		return fmt.Errorf("%w: Why must give the reason, in one line of up to %d bytes", ErrInvalid, maxWhy)
	}
	return nil
}

// plain reports whether s is one line of text.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }

// author is the author of the action's notes.
func (a *Action) author() string { return "operator " + a.By }

// note adds the action's note to its write. The note carries the action's ID, so that a
// repetition recognises the write as its own.
func (a *Action) note(w *retrysafe.Write, what string) {
	w.AddNote(retrysafe.Note{By: a.author(), Text: what + ": " + a.Why, ID: a.ID})
}

// done returns the note of the action in r, if there is one. Then an earlier try has
// changed the record, even if its caller got an error. Releases before notes had IDs
// wrote the ID at the end of the text.
func done(r *retrysafe.Record, by, id string) (retrysafe.Note, bool) {
	for i := len(r.Inquiry.Notes) - 1; i >= 0; i-- {
		if n := r.Inquiry.Notes[i]; n.By == by && (n.ID == id || n.ID == "" && strings.HasSuffix(n.Text, mark(id))) {
			return n, true
		}
	}
	return retrysafe.Note{}, false
}

// fingerprint covers all fields of the action and the arguments of its verb.
func (a *Action) fingerprint(verb string, more []byte) retrysafe.Fingerprint {
	return fingerprint(verb, a.By, a.Why, a.Ref.Scope, a.Ref.Key, strconv.FormatInt(a.Revision, 10), a.ProviderRef, string(more))
}

// fingerprint hashes each part with its length before it, so that two different lists
// never give the same bytes.
func fingerprint(parts ...string) retrysafe.Fingerprint {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return retrysafe.Fingerprint{Alg: 1, Sum: sha256.Sum256(b)}
}
