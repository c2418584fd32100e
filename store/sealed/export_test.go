package sealed

import (
	"encoding/base64"

	"github.com/retrysafe/retrysafe"
)

// Misseal puts an envelope with any plaintext into one field of the record
// below, as code that lays plaintexts out differently would have sealed it.
func (k *Keyring) Misseal(below *retrysafe.Record, field string, plain []byte) {
	w := k.work()
	defer w.done()
	switch field {
	case "key text":
		w.bind(keyText, below.Ref)
		below.KeyText = w.seal(keyText, below.Ref, plain)
	case "request":
		w.bind(request, below.Ref)
		below.Request = w.seal(request, below.Ref, plain)
	case "checkpoint":
		w.bindCheckpoint(below)
		below.Checkpoint.Data = w.seal(checkpoint, below.Ref, plain)
	case "result":
		w.bindVersion(result, below)
		below.Result = &retrysafe.Result{Status: below.Result.Status, Omitted: below.Result.Omitted, Body: w.seal(result, below.Ref, plain)}
	case "reason":
		w.bindVersion(reason, below)
		below.Reason = base64.RawURLEncoding.EncodeToString(w.seal(reason, below.Ref, plain))
	case "inquiry":
		w.bindVersion(inquiry, below)
		text := base64.RawURLEncoding.EncodeToString(w.seal(inquiry, below.Ref, plain))
		below.Inquiry.Notes = []retrysafe.Note{{Text: text}}
	}
}

// Open opens a record of the store below as each method does.
func (k *Keyring) Open(below *retrysafe.Record) (retrysafe.Record, error) {
	return k.show(below, nil, "")
}
