package mysqlstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// idOfRef returns the id of a ref as an array.
func idOfRef(ref retrysafe.Ref) id { return id(idOf(ref)) }

// row is one row of the table of keys, as it was read.
type row struct {
	id                                   id
	owner                                retrysafe.Owner
	revision, deadline, created, updated int64
	state                                retrysafe.State
	head, tail, checkpoint               []byte
	now                                  int64 // the server's, in the statement that has read the row
}

// columns are the columns that scan reads.
const columns = `id, owner, revision, deadline, created, updated, state, head, tail, checkpoint, ` + now

// scan reads a row that was selected with columns.
func (at *row) scan(scan func(...any) error) error {
	var key, owner []byte
	if err := scan(&key, &owner, &at.revision, &at.deadline, &at.created, &at.updated, &at.state, &at.head, &at.tail, &at.checkpoint, &at.now); err != nil {
		return err
	}
	if len(key) != len(at.id) || len(owner) != len(at.owner) {
		return errors.New("an id or an owner of another size")
	}
	copy(at.id[:], key)
	copy(at.owner[:], owner)
	at.now = max(at.now, at.updated) // the row may have been written after the statement began
	return nil
}

// errOther refuses the second of two keys that have the same id.
var errOther = fmt.Errorf("%w: another key has the same hash", retrysafe.ErrUnreadable)

// record returns the record of the row, which must be that of ref.
func (at *row) record(ref retrysafe.Ref) (retrysafe.Record, error) {
	r, err := at.decode()
	if err == nil && r.Ref != ref {
		return retrysafe.Record{}, errOther
	}
	return r, err
}

// decode returns the record of the row.
func (at *row) decode() (r retrysafe.Record, err error) {
	head, err := storekit.DecodeRecord(at.head)
	if err != nil {
		return r, err
	}
	if r, err = storekit.DecodeRecord(at.tail); err != nil {
		return retrysafe.Record{}, err
	}
	if len(at.checkpoint) > 0 {
		c, err := storekit.DecodeRecord(at.checkpoint)
		if err != nil {
			return retrysafe.Record{}, err
		}
		r.Checkpoint = c.Checkpoint
	}
	if r.State != at.state || head.Owner != at.owner || idOfRef(head.Ref) != at.id {
		return retrysafe.Record{}, fmt.Errorf("%w: it is not what its row says that it is", retrysafe.ErrUnreadable)
	}
	r.Ref, r.KeyText, r.Operation, r.Fingerprint = head.Ref, head.KeyText, head.Operation, head.Fingerprint
	r.Owner, r.Request, r.Attempt = head.Owner, head.Request, head.Attempt
	r.Revision = at.revision
	r.Deadline, r.CreatedAt, r.UpdatedAt, r.ReadAt = fromMicros(at.deadline), fromMicros(at.created), fromMicros(at.updated), fromMicros(at.now)
	return r, nil
}

// appendHead appends what belongs to the attempt: a swap without Overwrite leaves it
// alone. It is the same bytes in every state of the attempt, so that a swap can compare
// them.
func appendHead(b []byte, r *retrysafe.Record) []byte {
	return storekit.AppendRecord(b, &retrysafe.Record{
		Ref: r.Ref, KeyText: r.KeyText, Operation: r.Operation, Fingerprint: r.Fingerprint,
		Owner: r.Owner, Request: r.Request, Attempt: r.Attempt, State: retrysafe.StateInProgress,
	})
}

// appendTail appends what every write replaces.
func appendTail(b []byte, r *retrysafe.Record) []byte {
	return storekit.AppendRecord(b, &retrysafe.Record{
		State: r.State, Lapse: r.Lapse, Effects: r.Effects, Version: r.Version, Result: r.Result,
		ProviderRef: r.ProviderRef, Reason: r.Reason, Retain: r.Retain, Inquiry: r.Inquiry,
	})
}

// appendCheckpoint appends a checkpoint: nothing if it is zero.
func appendCheckpoint(b []byte, r *retrysafe.Record) []byte {
	if r.Checkpoint.IsZero() {
		return b
	}
	return storekit.AppendRecord(b, &retrysafe.Record{Checkpoint: r.Checkpoint, State: retrysafe.StateInProgress})
}

// created returns the record that w leaves behind when it is inserted at now.
func created(w *retrysafe.Write, now int64) retrysafe.Record {
	r := w.Record
	r.Revision = now
	r.CreatedAt = fromMicros(now)
	r.UpdatedAt, r.ReadAt = r.CreatedAt, r.CreatedAt
	r.Deadline = fromMicros(now + termOf(w))
	return r
}

// swapped returns the record that w leaves behind where it meets stored, at now.
func swapped(stored *retrysafe.Record, w *retrysafe.Write, now int64) retrysafe.Record {
	now = max(now, stored.UpdatedAt.UnixMicro())
	at := fromMicros(now)
	r := storekit.Apply(stored, w, at)
	r.Revision = max(stored.Revision+1, now)
	r.UpdatedAt, r.ReadAt, r.Deadline = at, at, fromMicros(now+termOf(w))
	return r
}

// refusal returns why the stored record refuses a swap, or nil.
func refusal(stored *retrysafe.Record, w *retrysafe.Write) error {
	if stored.Fence() != w.Expect {
		return retrysafe.ErrConflict
	}
	return nil
}

// found returns what a Create gets that meets the stored record: nil if it is its own.
func found(stored *retrysafe.Record, w *retrysafe.Write) error {
	if stored.Owner == w.Owner && !w.Owner.IsZero() {
		return nil
	}
	return retrysafe.ErrExists
}

// termOf is the write's term in microseconds.
func termOf(w *retrysafe.Write) int64 { return w.Term.Microseconds() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }
