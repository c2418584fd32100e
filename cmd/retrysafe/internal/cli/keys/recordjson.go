package keys

import (
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/internal/failreason"
	"github.com/retrysafe/retrysafe/outbox"
)

// recordJSON is a record for scripts.
type recordJSON struct {
	keyref.JSON
	Operation   string      `json:"operation,omitempty"`
	State       string      `json:"state"`
	Due         bool        `json:"due"`
	Dead        bool        `json:"dead,omitempty"`
	Disputed    bool        `json:"disputed,omitempty"`
	Unreadable  bool        `json:"unreadable,omitempty"`
	Attempt     int         `json:"attempt"`
	Effects     string      `json:"effects"`
	Lapse       string      `json:"lapse"`
	Revision    int64       `json:"revision"`
	CreatedAt   time.Time   `json:"created_at"`
	UpdatedAt   time.Time   `json:"updated_at"`
	Deadline    time.Time   `json:"deadline"`
	ReadAt      time.Time   `json:"read_at"`
	Answer      *answerJSON `json:"answer,omitempty"`
	Request     int         `json:"request_bytes,omitempty"`
	Phase       string      `json:"phase,omitempty"`
	ProviderRef string      `json:"provider_ref,omitempty"`
	Reason      string      `json:"reason,omitempty"`
	Upstream    int         `json:"upstream_status,omitempty"` // of the service, when the attempt failed
	Tries       int         `json:"tries,omitempty"`
	Notes       []noteJSON  `json:"notes,omitempty"`
	Steps       []stepJSON  `json:"steps,omitempty"`
	Receipts    []receipt   `json:"receipts,omitempty"`
	// DownstreamKey is what the service behind a gateway gets by derive_key.
	DownstreamKey string `json:"downstream_key,omitempty"`
}

// answerJSON is a stored answer for scripts. The body is there if it was asked for: as
// text, or as bytes if it is not text.
type answerJSON struct {
	Status      int                 `json:"status"`
	Headers     map[string][]string `json:"headers,omitempty"`
	HeaderNames []string            `json:"header_names,omitempty"` // where the headers are hidden
	Omitted     bool                `json:"omitted,omitempty"`
	BodySize    int                 `json:"body_bytes"`
	Body        string              `json:"body,omitempty"`
	BodyBytes   []byte              `json:"body_base64,omitempty"`
}

type noteJSON struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	State  string    `json:"state"`
	Text   string    `json:"text"`
	Action string    `json:"action,omitempty"` // the ID of the operator's action
}

// A receipt is that of a message which settled the key, for scripts.
type receipt struct {
	Message     int64     `json:"message"`
	Topic       string    `json:"topic"`
	Key         string    `json:"downstream_key"`
	ProviderRef string    `json:"provider_ref,omitempty"`
	DeliveredAt time.Time `json:"delivered_at"`
	ExpiresAt   time.Time `json:"expires_at"`
}

func newReceiptJSON(r *outbox.KeptReceipt) receipt {
	return receipt{r.ID, r.Topic, r.Key, r.ProviderRef, r.Delivered, r.Expires}
}

type stepJSON struct {
	Name        string `json:"name"`
	Effect      bool   `json:"effect,omitempty"`
	Open        bool   `json:"open,omitempty"`
	Calls       int    `json:"calls,omitempty"`
	ProviderRef string `json:"provider_ref,omitempty"`
}

// newRecordJSON returns a record for scripts: with the hash of the key instead of the
// key if hashed, and with the body of the answer if body.
func newRecordJSON(r *adminwire.View, hashed, body bool) recordJSON {
	j := recordJSON{
		JSON: keyref.NewJSON(r.Ref, hashed), Operation: r.Operation, State: r.State.String(), Due: r.Due(),
		Dead: r.Inquiry.Dead, Disputed: r.Inquiry.Disputed, Unreadable: !readable(&r.Record), Attempt: r.Attempt,
		Effects: r.Effects.String(), Lapse: r.Lapse.String(), Revision: r.Revision,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Deadline: r.Deadline, ReadAt: r.ReadAt,
		Request: r.RequestSize(), Phase: r.Checkpoint.Phase, ProviderRef: r.ProviderRef, Reason: r.Reason,
		Upstream: failreason.Status(r.Reason), Tries: r.Inquiry.Tries,
	}
	for _, n := range r.Inquiry.Notes {
		j.Notes = append(j.Notes, noteJSON{n.At, n.By, n.State.String(), n.Text, n.ID})
	}
	for _, s := range r.Steps() {
		j.Steps = append(j.Steps, stepJSON{s.Name, s.Effect, s.Open, s.Calls, s.ProviderRef})
	}
	if r.Result != nil {
		j.Answer = &answerJSON{Status: r.Result.Status, Headers: r.Result.Header, Omitted: r.Result.Omitted, BodySize: r.BodySize()}
		switch {
		case !body:
		case utf8.Valid(r.Result.Body):
			j.Answer.Body = string(r.Result.Body)
		default:
			j.Answer.BodyBytes = r.Result.Body
		}
	}
	return j
}
