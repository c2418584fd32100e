package operator

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
)

// An Outcome is how an action ended.
type Outcome string

const (
	// Done: the record was changed.
	Done Outcome = "done"
	// Refused: it was not; the entry says why.
	Refused Outcome = "refused"
	// Gone: there is nothing left to act on, and an earlier try of this action may
	// have done that, or somebody else.
	Gone Outcome = "gone"
	// Open: nobody knows yet. The action was begun and its end is not stored: it
	// is running, or was cut short. Whoever repeats it under its ID finds out.
	Open Outcome = "open"
)

// An Entry is what the audit says of one action.
type Entry struct {
	// ID is the action's.
	ID string `json:"id"`
	// At is when it was first asked for, by the store's clock.
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Verb string    `json:"verb"`
	Why  string    `json:"why"`
	// Ref is the record that it is about, if it is about one; of a letter it is the
	// letter's ID, in a scope of retrysafe's own.
	Ref retrysafe.Ref `json:"ref"`
	// KeyHash is how logs name the key.
	KeyHash string `json:"key_hash,omitempty"`
	// Seen is the revision that the person saw.
	Seen int64 `json:"seen,omitempty"`
	// Force says that a warning was overruled.
	Force bool `json:"force,omitempty"`
	// From and To are the record before and after. If it was refused, To is what
	// the record is instead.
	From Point `json:"from,omitzero"`
	To   Point `json:"to,omitzero"`
	// Status is that of the answer which retries get from now on, if there is one.
	Status  int     `json:"status,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Code and Text say why it was refused.
	Code string `json:"code,omitempty"`
	Text string `json:"text,omitempty"`
	// Attempt is how often it was begun.
	Attempt int `json:"attempt,omitempty"`
	// Report is what a quarantine has come to.
	Report *Report `json:"report,omitempty"`
	// Replayed says that this is the outcome of an earlier click.
	Replayed bool `json:"-"`
}

// A Point is where a record stood.
type Point struct {
	State    retrysafe.State
	Revision int64
}

func pointOf(r *retrysafe.Record) Point { return Point{r.State, r.Revision} }

// String returns the point as people read it.
func (p Point) String() string { return fmt.Sprintf("%s at revision %d", p.State, p.Revision) }

type pointJSON struct {
	State    string `json:"state"`
	Revision int64  `json:"revision"`
}

// MarshalJSON names the state.
func (p Point) MarshalJSON() ([]byte, error) {
	return json.Marshal(pointJSON{p.State.String(), p.Revision})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (p *Point) UnmarshalJSON(b []byte) error {
	var w pointJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*p = Point{Revision: w.Revision}
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		if s.String() == w.State {
			p.State = s
		}
	}
	return nil
}

// refJSON is a Ref in JSON. Scope and key are bytes, and JSON has only text: where
// they are none, Bytes has them.
type refJSON struct {
	Scope string     `json:"scope"`
	Key   string     `json:"key"`
	Bytes *[2][]byte `json:"bytes,omitempty"`
}

func wire(r retrysafe.Ref) *refJSON {
	if r == (retrysafe.Ref{}) {
		return nil
	}
	w := refJSON{Scope: r.Scope, Key: r.Key}
	if !utf8.ValidString(r.Scope) || !utf8.ValidString(r.Key) {
		w.Bytes = &[2][]byte{[]byte(r.Scope), []byte(r.Key)}
	}
	return &w
}

func (w *refJSON) ref() retrysafe.Ref {
	switch {
	case w == nil:
		return retrysafe.Ref{}
	case w.Bytes != nil:
		return retrysafe.Ref{Scope: string(w.Bytes[0]), Key: string(w.Bytes[1])}
	default:
		return retrysafe.Ref{Scope: w.Scope, Key: w.Key}
	}
}

type plainEntry Entry

type entryJSON struct {
	plainEntry
	Ref *refJSON `json:"ref,omitempty"` // instead of the one within
}

// MarshalJSON keeps scopes and keys that are no text.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(entryJSON{plainEntry(e), wire(e.Ref)})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var w entryJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*e = Entry(w.plainEntry)
	e.Ref = w.Ref.ref()
	return nil
}
