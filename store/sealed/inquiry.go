package sealed

import (
	"encoding/base64"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// The notes of a record are stored below as one note. Its Text is the envelope of the
// whole inquiry; its other fields are empty. Tries and Dead are stored beside it in
// plaintext, for searches, and are compared with the sealed ones.

// sealInquiry returns the inquiry of the record below for q, which is not zero.
func (w *work) sealInquiry(q *retrysafe.Inquiry, below *retrysafe.Record) retrysafe.Inquiry {
	w.plain = storekit.AppendInquiry(w.plain[:0], q)
	w.bindVersion(inquiry, below)
	text := base64.RawURLEncoding.EncodeToString(w.seal(inquiry, below.Ref, w.plain))
	return retrysafe.Inquiry{Tries: max(q.Tries, 0), Dead: q.Dead, Notes: []retrysafe.Note{{Text: text}}}
}

func (w *work) openInquiry(below *retrysafe.Record) (none retrysafe.Inquiry, err error) {
	notes := below.Inquiry.Notes
	if len(notes) != 1 || !notes[0].At.IsZero() || notes[0].By != "" || notes[0].ID != "" || notes[0].State != 0 {
		return none, unreadable(inquiry, "is not sealed")
	}
	envelope, err := base64.RawURLEncoding.DecodeString(notes[0].Text)
	if err != nil {
		return none, unreadable(inquiry, "is not sealed, or is cut short")
	}
	w.bindVersion(inquiry, below)
	plain, err := w.open(inquiry, below.Ref, envelope)
	if err != nil {
		return none, err
	}
	up, err := storekit.DecodeInquiry(plain)
	switch {
	case err != nil:
		return none, misread(inquiry)
	case !sameCounts(&up, &below.Inquiry):
		return none, unreadable(inquiry, "is not the one that stands beside it")
	}
	return up, nil
}

// placeholderInquiry returns what is shown of an inquiry that does not open.
func placeholderInquiry(below *retrysafe.Inquiry) retrysafe.Inquiry {
	return retrysafe.Inquiry{Tries: below.Tries, Dead: below.Dead}
}

func sameCounts(a, b *retrysafe.Inquiry) bool { return a.Tries == b.Tries && a.Dead == b.Dead }
