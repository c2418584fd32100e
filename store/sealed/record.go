package sealed

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// sealAll returns the write that Create and a Swap with Overwrite send to the store
// below. It replaces the whole record, so all of it is sealed anew.
func (w *work) sealAll(up *retrysafe.Write, below retrysafe.Ref) retrysafe.Write {
	down := w.sealStep(up, below, true)
	w.plain = appendNames(w.plain[:0], &up.Record)
	w.bind(keyText, below)
	down.KeyText = w.seal(keyText, below, w.plain)
	if up.Request != nil {
		w.bind(request, below)
		down.Request = w.seal(request, below, up.Request)
	}
	return down
}

// sealStep returns the write that a Swap without Overwrite sends to the store below. It
// has no KeyText or Request: these stay as stored, whatever up holds. The same goes for
// the Checkpoint if the write does not set one. Zero fields stay zero.
func (w *work) sealStep(up *retrysafe.Write, below retrysafe.Ref, setsCheckpoint bool) retrysafe.Write {
	down := *up
	down.Ref, down.KeyText, down.Request = below, nil, nil
	switch {
	case !setsCheckpoint:
		down.Checkpoint = retrysafe.Checkpoint{}
	case !up.Checkpoint.IsZero():
		w.plain = appendOptional(w.plain[:0], up.Checkpoint.Data)
		w.bindCheckpoint(&down.Record)
		down.Checkpoint.Data = w.seal(checkpoint, below, w.plain)
	}
	if up.Result != nil {
		w.plain = storekit.AppendResult(slices.Grow(w.plain[:0], len(up.Result.Body)+1024), up.Result)
		w.bindVersion(result, &down.Record)
		down.Result = &retrysafe.Result{
			Status:  up.Result.Status,
			Omitted: up.Result.Omitted,
			Body:    w.seal(result, below, w.plain),
		}
	}
	if up.Reason != "" {
		w.plain = append(w.plain[:0], up.Reason...)
		w.bindVersion(reason, &down.Record)
		down.Reason = base64.RawURLEncoding.EncodeToString(w.seal(reason, below, w.plain))
	}
	if !up.Inquiry.IsZero() {
		down.Inquiry = w.sealInquiry(&up.Inquiry, &down.Record)
	}
	return down
}

// An echo is a record that was sent to the store below in this step, in plaintext and
// sealed. If the same sealed record comes back, it need not be opened. It is nil for a
// step that sends nothing.
type echo struct{ plain, sealed *retrysafe.Record }

func (e *echo) hasNames(below *retrysafe.Record) bool {
	return e != nil && e.sealed.KeyText != nil && below.Ref == e.sealed.Ref && bytes.Equal(below.KeyText, e.sealed.KeyText)
}

func (e *echo) hasResult(below *retrysafe.Record) bool {
	return e != nil && e.sealed.Result != nil && below.Ref == e.sealed.Ref && below.Version == e.sealed.Version &&
		below.Result.Equal(e.sealed.Result)
}

func (e *echo) hasInquiry(below *retrysafe.Record) bool {
	return e != nil && below.Ref == e.sealed.Ref && below.Version == e.sealed.Version &&
		sameCounts(&below.Inquiry, &e.sealed.Inquiry) && slices.Equal(below.Inquiry.Notes, e.sealed.Inquiry.Notes)
}

// openAll returns the plaintext of a record that the store below returned, or an error
// that wraps ErrUnreadable if any field does not open.
func (w *work) openAll(below *retrysafe.Record, sent *echo) (retrysafe.Record, error) {
	up := *below
	var err error
	if sent.hasNames(below) {
		up.Ref, up.KeyText = sent.plain.Ref, sent.plain.KeyText
	} else if up.Ref, up.KeyText, err = w.openNames(below); err != nil {
		return retrysafe.Record{}, err
	}
	if below.Request != nil {
		w.bind(request, below.Ref)
		if up.Request, err = w.open(request, below.Ref, below.Request); err != nil {
			return retrysafe.Record{}, err
		}
	}
	if !below.Checkpoint.IsZero() {
		w.bindCheckpoint(below)
		data, err := w.open(checkpoint, below.Ref, below.Checkpoint.Data)
		if err != nil {
			return retrysafe.Record{}, err
		}
		var ok bool
		if up.Checkpoint.Data, ok = parseOptional(data); !ok {
			return retrysafe.Record{}, misread(checkpoint)
		}
	}
	if sent.hasResult(below) {
		up.Result = sent.plain.Result
	} else if below.Result != nil {
		if up.Result, err = w.openResult(below); err != nil {
			return retrysafe.Record{}, err
		}
	}
	if below.Reason != "" {
		if up.Reason, err = w.openReason(below); err != nil {
			return retrysafe.Record{}, err
		}
	}
	if sent.hasInquiry(below) {
		up.Inquiry = sent.plain.Inquiry
	} else if !below.Inquiry.IsZero() {
		if up.Inquiry, err = w.openInquiry(below); err != nil {
			return retrysafe.Record{}, err
		}
	}
	return up, nil
}

// openNames returns the true Ref of the record below, and the KeyText that it had
// above.
func (w *work) openNames(below *retrysafe.Record) (retrysafe.Ref, []byte, error) {
	w.bind(keyText, below.Ref)
	plain, err := w.open(keyText, below.Ref, below.KeyText)
	if err != nil {
		return retrysafe.Ref{}, nil, err
	}
	ref, above, ok := parseNames(plain)
	if !ok {
		return retrysafe.Ref{}, nil, misread(keyText)
	}
	return ref, above, nil
}

func (w *work) openResult(below *retrysafe.Record) (*retrysafe.Result, error) {
	w.bindVersion(result, below)
	plain, err := w.open(result, below.Ref, below.Result.Body)
	if err != nil {
		return nil, err
	}
	up, err := storekit.DecodeResult(plain)
	switch {
	case err != nil:
		return nil, misread(result)
	case up.Status != below.Result.Status || up.Omitted != below.Result.Omitted || len(below.Result.Header) > 0:
		return nil, unreadable(result, "is not the answer that stands beside it")
	}
	return up, nil
}

func (w *work) openReason(below *retrysafe.Record) (string, error) {
	envelope, err := base64.RawURLEncoding.DecodeString(below.Reason)
	if err != nil {
		return "", unreadable(reason, "is not sealed, or is cut short")
	}
	w.bindVersion(reason, below)
	plain, err := w.open(reason, below.Ref, envelope)
	return string(plain), err
}

// misread returns the error of a field that opened, so it is authentic, but that has an
// unknown layout.
func misread(p purpose) error {
	return unreadable(p, "opens, but is laid out in a way that is not known here")
}

func (w *work) bindCheckpoint(below *retrysafe.Record) {
	w.bind(checkpoint, below.Ref)
	w.aad = append(w.aad, below.Checkpoint.Phase...)
}

func (w *work) bindVersion(p purpose, below *retrysafe.Record) {
	w.bind(p, below.Ref)
	w.aad = append(w.aad, below.Version)
}

// appendNames appends the true names of a record, and the KeyText that the caller gave
// it: that of a second sealing store above this one.
func appendNames(b []byte, r *retrysafe.Record) []byte {
	b = appendString(b, r.Scope)
	b = appendString(b, r.Key)
	return appendOptional(b, r.KeyText)
}

func parseNames(b []byte) (ref retrysafe.Ref, above []byte, ok bool) {
	scope, b, ok1 := cutString(b)
	key, b, ok2 := cutString(b)
	above, ok3 := parseOptional(b)
	return retrysafe.Ref{Scope: scope, Key: key}, above, ok1 && ok2 && ok3
}

// appendOptional appends p as the last part of a plaintext, and distinguishes nil from
// empty.
func appendOptional(b, p []byte) []byte {
	if p == nil {
		return append(b, 0)
	}
	return append(append(b, 1), p...)
}

func parseOptional(b []byte) ([]byte, bool) {
	switch {
	case len(b) == 1 && b[0] == 0:
		return nil, true
	case len(b) >= 1 && b[0] == 1:
		return b[1:], true
	}
	return nil, false
}

// appendString appends the length of s and then s, so that what follows cannot be
// mistaken for a part of it.
func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// cutString removes a string that appendString has appended from the front of b.
func cutString(b []byte) (s string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	b = b[n:]
	return string(b[:size]), b[size:], true
}
