package ledger

import (
	"fmt"
	"iter"
	"strings"
)

// A Kind says in what way two lists disagree.
type Kind uint8

const (
	// KindOnlyOurs: we know of a payment that the provider does not know.
	KindOnlyOurs Kind = iota + 1
	// KindOnlyTheirs: the provider has made a payment that we do not know.
	KindOnlyTheirs
	// KindDifferent: both know the payment and do not agree on it.
	KindDifferent
	// KindDuplicateOurs: our list has the id more than once. This is one of the rows after the first.
	KindDuplicateOurs
	// KindDuplicateTheirs: the provider has the id more than once, as after a double charge. This is one of the rows
	// after the first.
	KindDuplicateTheirs
	// KindPendingOurs: it would be KindOnlyOurs, but its time is outside the period that is compared.
	KindPendingOurs
	// KindPendingTheirs: it would be KindOnlyTheirs, but its time is outside the period that is compared.
	KindPendingTheirs
	// KindUnknown: we do not know whether the payment was made, and the provider's list does not have it.
	KindUnknown
	// KindUnknownConfirmed: we do not know whether the payment was made, and the provider's list has it.
	KindUnknownConfirmed
	// KindUnidentified: we have an answer without the id that the provider would know the payment by.
	KindUnidentified
)

var kindNames = [...]string{
	"none", "only_ours", "only_theirs", "different", "duplicate_ours", "duplicate_theirs", "pending_ours", "pending_theirs",
	"unknown", "unknown_confirmed", "unidentified",
}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// A Difference is one disagreement of two lists.
type Difference struct {
	Kind Kind
	ID   string
	// Ours and Theirs are the rows. A row that does not exist is zero, and so is the other side of a duplicate.
	Ours, Theirs Entry
	// Fields are the names of the fields that differ, in order, if the kind is KindDifferent.
	Fields []string
}

// A Summary counts what a comparison has seen. Each row of ours is counted in exactly one of Same, Different,
// OnlyOurs, DuplicateOurs, PendingOurs, Unknown, UnknownConfirmed and Unidentified; theirs likewise.
type Summary struct {
	// Complete says that both lists were read to their ends, and every row was compared.
	Complete bool `json:"complete"`
	// Ours and Theirs are the numbers of rows that were compared.
	Ours   int64 `json:"ours"`
	Theirs int64 `json:"theirs"`
	// Same is the number of payments that both sides agree on.
	Same            int64 `json:"same"`
	Different       int64 `json:"different"`
	OnlyOurs        int64 `json:"only_ours"`
	OnlyTheirs      int64 `json:"only_theirs"`
	DuplicateOurs   int64 `json:"duplicate_ours"`
	DuplicateTheirs int64 `json:"duplicate_theirs"`
	PendingOurs     int64 `json:"pending_ours"`
	PendingTheirs   int64 `json:"pending_theirs"`
	// Unknown and UnknownConfirmed are payments whose outcome we do not know; the provider has the confirmed ones.
	Unknown          int64 `json:"unknown"`
	UnknownConfirmed int64 `json:"unknown_confirmed"`
	// Unidentified are answers of ours without an id to compare by.
	Unidentified int64 `json:"unidentified"`
}

// Clean reports whether everything was compared and nothing is wrong. What is pending is not wrong.
func (s *Summary) Clean() bool {
	wrong := s.Different + s.OnlyOurs + s.OnlyTheirs + s.DuplicateOurs + s.DuplicateTheirs + s.Unknown + s.UnknownConfirmed + s.Unidentified
	return s.Complete && wrong == 0
}

// String returns the summary as a line for people: what is zero is left out.
func (s *Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rows: %d ours, %d theirs; %d the same", s.Ours, s.Theirs, s.Same)
	for k, n := range s.Counts() {
		if n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, strings.ReplaceAll(k.String(), "_", " "))
		}
	}
	if !s.Complete {
		b.WriteString("; INCOMPLETE")
	}
	return b.String()
}

// Counts yields the kinds and how many there are of each, the kinds with none included.
func (s *Summary) Counts() iter.Seq2[Kind, int64] {
	return func(yield func(Kind, int64) bool) {
		for k := KindOnlyOurs; int(k) < len(kindNames); k++ {
			if !yield(k, *s.of(k)) {
				return
			}
		}
	}
}

// of returns the counter of a kind.
func (s *Summary) of(k Kind) *int64 {
	switch k {
	case KindOnlyOurs:
		return &s.OnlyOurs
	case KindOnlyTheirs:
		return &s.OnlyTheirs
	case KindDuplicateOurs:
		return &s.DuplicateOurs
	case KindDuplicateTheirs:
		return &s.DuplicateTheirs
	case KindPendingOurs:
		return &s.PendingOurs
	case KindPendingTheirs:
		return &s.PendingTheirs
	case KindUnknown:
		return &s.Unknown
	case KindUnknownConfirmed:
		return &s.UnknownConfirmed
	case KindUnidentified:
		return &s.Unidentified
	default:
		return &s.Different
	}
}
