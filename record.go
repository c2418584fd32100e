package retrysafe

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// RecordVersion is the version of the record's meaning and encoding that this
// code writes. A record of a newer version is refused, never run again.
const RecordVersion = 1

// A Ref names a key inside the scope that owns it. Two scopes never see each
// other's keys. Both strings are opaque bytes to every store.
type Ref struct{ Scope, Key string }

// SystemScope returns the scope of keys that belong to retrysafe itself, such as
// those of operators' actions. No tenant has it: a scope that begins with a zero
// byte is refused wherever it comes from a request.
func SystemScope(name string) string { return systemPrefix + name }

const systemPrefix = "\x00retrysafe/"

// IsSystem reports whether the key belongs to retrysafe itself.
func (r Ref) IsSystem() bool { return strings.HasPrefix(r.Scope, "\x00") }

// Owner is the nonce of one attempt. It lets a step whose reply was lost
// recognise itself, and no two attempts share one.
type Owner [16]byte

// IsZero reports whether o is no attempt's.
func (o Owner) IsZero() bool { return o == Owner{} }

// String returns o in hexadecimal.
func (o Owner) String() string { return hex.EncodeToString(o[:]) }

// State says what is known of the operation under a key.
type State uint8

// The states of a record. The zero State is none of them.
const (
	// StateAccepted: stored for a worker; it does not run yet.
	StateAccepted State = iota + 1
	// StateInProgress: one owner works under a lease.
	StateInProgress
	// StateCompleted: the answer is stored, good or bad. It never changes.
	StateCompleted
	// StateRetryable: proven not to have happened; the next call runs.
	StateRetryable
	// StateUnknown: it may have happened. Only its owner, a reconciler or an operator
	// moves it, with evidence. Under [LapseFail] it has an answer all the same, which
	// retries get and which never changes: it is under review.
	StateUnknown
	// StateExpired: the answer is forgotten, the key is kept for audit.
	StateExpired
)

var stateNames = [...]string{"invalid", "accepted", "in_progress", "completed", "retryable", "unknown", "expired"}

// String returns the state's name as logs, metrics and the console show it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return s >= StateAccepted && s <= StateExpired }

// Forgettable reports whether a record in this state may be deleted once its
// deadline has passed. What is in flight or unknown never is.
func (s State) Forgettable() bool {
	return s == StateCompleted || s == StateRetryable || s == StateExpired
}

// A Result is the answer of an operation, as it is stored and replayed. It is
// never changed after it was handed to a store or returned by one.
type Result struct {
	Status int
	Header map[string][]string
	Body   []byte
	// Omitted says that the operation was executed but its body was not kept:
	// it was over the limit or streamed. A replay says so instead of running again.
	Omitted bool
}

// Equal reports whether r and o are the same answer, byte for byte.
func (r *Result) Equal(o *Result) bool {
	if r == nil || o == nil {
		return r == o
	}
	if r.Status != o.Status || r.Omitted != o.Omitted || string(r.Body) != string(o.Body) || len(r.Header) != len(o.Header) {
		return false
	}
	for name, values := range r.Header {
		others, ok := o.Header[name]
		if !ok || len(values) != len(others) {
			return false
		}
		for i := range values {
			if values[i] != others[i] {
				return false
			}
		}
	}
	return true
}

// A Checkpoint is how far an execution has come: the name of the last finished
// phase and what the next owner needs to go on from there.
type Checkpoint struct {
	Phase string
	Data  []byte
}

// IsZero reports whether nothing was checkpointed.
func (c Checkpoint) IsZero() bool { return c.Phase == "" && c.Data == nil }

// A Record is all that is known of one key.
//
// A store returns records and is given a [Write] to change one. Revision, Deadline,
// CreatedAt, UpdatedAt and ReadAt are the store's: it sets them, and ignores what a
// write holds there.
//
// Slices and maps in a record are shared, never changed.
type Record struct {
	Ref
	// KeyText is the key's text encrypted, when a sealing store hides it from
	// the one below. It is opaque bytes otherwise unused.
	KeyText     []byte
	Operation   string
	Fingerprint Fingerprint
	State       State
	Lapse       Lapse
	Effects     Effects
	Version     uint8
	// Owner is the attempt that holds the record. A sweeper keeps it, so that a late
	// owner can recognise its own attempt.
	Owner      Owner
	Attempt    int
	Request    []byte
	Checkpoint Checkpoint
	Result     *Result
	// ProviderRef is the other side's own name for the effect, once known.
	ProviderRef string
	// Reason is why the record left InProgress without an answer, for operators.
	Reason string
	// Inquiry is what others than its owners did to the record and found out.
	Inquiry Inquiry
	// Retain is how long a final answer is kept. It is stored so that a sweeper,
	// a worker or an operator settles without configuration.
	Retain time.Duration
	// Revision is the fence. It starts at the store's clock in microseconds, grows
	// with each write and never repeats, not even after a purge.
	Revision int64
	// Deadline and the other times are by the store's clock. ReadAt is its "now" in
	// the very step that returned the record; it is not stored.
	Deadline, CreatedAt, UpdatedAt, ReadAt time.Time
}

// Due reports whether the record's deadline had passed when it was read. What
// was due then stays due while the revision stands, so it may be acted upon by
// compare-and-swap without a clock.
func (r *Record) Due() bool { return !r.ReadAt.Before(r.Deadline) }

// Readable reports whether this code knows what the record means. What it does not
// know, because a newer version wrote it or because it is damaged, is left alone.
func (r *Record) Readable() bool {
	answered := (r.State == StateCompleted) == (r.Result != nil) || r.UnderReview()
	return r.Version != 0 && r.Version <= RecordVersion && r.State.Valid() && answered
}

// UnderReview reports whether the outcome is unknown and retries get an error answer all
// the same, by [LapseFail]. Evidence or an operator closes the review; the answer stays.
func (r *Record) UnderReview() bool { return r.State == StateUnknown && r.Result != nil }

// Update returns the write that replaces r: set what is to change, and swap it in.
func (r Record) Update() Write {
	return Write{Record: r, Expect: r.Fence()}
}

// Fence returns what a write of this record expects to find stored.
func (r *Record) Fence() Fence { return Fence{Revision: r.Revision, Owner: r.Owner} }

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
// is for a write that is not one of the record's own attempt. The note of a question that
// is open, see [DecideInquiry], is replaced by it.
func (r *Record) AddNote(n Note) {
	notes := slices.Clone(withoutQuestion(r.Inquiry.Notes))
	if len(notes) >= maxNotes {
		notes = slices.Delete(notes, 1, len(notes)-maxNotes+2)
	}
	n.At, n.State = r.ReadAt, r.State
	n.By, n.Text, n.ID = clean(n.By), clean(n.Text), clean(n.ID)
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
