package operator

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
)

// A Status is how an action ended.
type Status string

const (
	// StatusDone: the record was changed.
	StatusDone Status = "done"
	// StatusRefused: it was not; the entry says why.
	StatusRefused Status = "refused"
	// StatusGone: the record or letter is no longer there. An earlier try of this action may
	// have removed it, or another actor.
	StatusGone Status = "gone"
	// StatusOpen: not known yet. The action was begun and its end is not stored: it is
	// running, or was interrupted. Repeating it under its ID tells.
	StatusOpen Status = "open"
)

// An Entry is the record of one action in the audit.
type Entry struct {
	// ID is the action's ID.
	ID string `json:"id"`
	// At is the time of the action's first try, by the store's clock.
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Verb string    `json:"verb"`
	Why  string    `json:"why"`
	// Ref is the record of the action, if it has one. For a dead letter its key is the
	// letter's ID, in a scope of retrysafe's own.
	Ref retrysafe.Ref `json:"ref"`
	// KeyHash is the hash of the key, as in logs.
	KeyHash string `json:"key_hash,omitempty"`
	// Seen is the revision that the operator saw.
	Seen int64 `json:"seen,omitempty"`
	// Force says that the operator overruled a warning.
	Force bool `json:"force,omitempty"`
	// From and To are the record before and after. If the action was refused, To is the
	// record as it is.
	From Snapshot `json:"from,omitzero"`
	To   Snapshot `json:"to,omitzero"`
	// Status is the status of the answer that retries get from now on, if there is one.
	Status  int    `json:"status,omitempty"`
	Outcome Status `json:"outcome"`
	// Code and Text say why the action was refused.
	Code string `json:"code,omitempty"`
	Text string `json:"text,omitempty"`
	// Attempt is how often the action was begun.
	Attempt int `json:"attempt,omitempty"`
	// Report is the result of a quarantine.
	Report *Report `json:"report,omitempty"`
	// Batch is the ID of the batch that the action is a part of, if it is.
	Batch string `json:"batch,omitempty"`
	// Counts are the result of a batch.
	Counts *BatchReport `json:"counts,omitempty"`
	// Replayed says that this is the stored outcome of an earlier try.
	Replayed bool `json:"-"`

	pending []pendingKey // records that a batch is about to change
}

// A pendingKey is a record that a batch is about to change, at the revision that was
// counted.
type pendingKey struct {
	Ref      *refJSON `json:"ref"`
	Revision int64    `json:"revision"`
}

// A Snapshot is the state and revision of a record at one moment.
type Snapshot struct {
	State    retrysafe.State
	Revision int64
}

func pointOf(r *retrysafe.Record) Snapshot { return Snapshot{r.State, r.Revision} }

// String returns the point as text.
func (p Snapshot) String() string { return fmt.Sprintf("%s at revision %d", p.State, p.Revision) }

type pointJSON struct {
	State    string `json:"state"`
	Revision int64  `json:"revision"`
}

// MarshalJSON names the state.
func (p Snapshot) MarshalJSON() ([]byte, error) {
	return json.Marshal(pointJSON{p.State.String(), p.Revision})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (p *Snapshot) UnmarshalJSON(b []byte) error {
	var w pointJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*p = Snapshot{Revision: w.Revision}
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		if s.String() == w.State {
			p.State = s
		}
	}
	return nil
}

// refJSON is a Ref in JSON. Scope and key are arbitrary bytes. If one of them is not
// UTF-8, Bytes holds both.
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
	Ref     *refJSON     `json:"ref,omitempty"` // instead of the one within
	Pending []pendingKey `json:"pending,omitempty"`
}

// MarshalJSON keeps scopes and keys that are not UTF-8.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(entryJSON{plainEntry(e), wire(e.Ref), e.pending})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var w entryJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*e = Entry(w.plainEntry)
	e.Ref, e.pending = w.Ref.ref(), w.Pending
	return nil
}
