package adminwire

import (
	"errors"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// A Message is a message of the outbox that is a dead letter, or fails and is still tried.
// Its payload is there only if it was revealed, and its headers for the role act.
type Message struct {
	ID           int64             `json:"id"`
	Dead         bool              `json:"dead"`
	Topic        string            `json:"topic"`
	Group        string            `json:"group,omitempty"`
	Key          string            `json:"key"`
	Tries        int               `json:"tries"`
	EnqueuedAt   time.Time         `json:"enqueued_at"`
	Age          float64           `json:"age_seconds"`
	DiedAt       time.Time         `json:"died_at,omitzero"`
	Why          string            `json:"why,omitempty"`
	ProviderRef  string            `json:"provider_ref,omitempty"`
	Revision     int64             `json:"revision"`
	Settles      *Key              `json:"settles,omitempty"`
	Header       map[string]string `json:"header,omitempty"`
	HeaderNames  []string          `json:"header_names,omitempty"`
	PayloadSize  int               `json:"payload_bytes"`
	Payload      *string           `json:"payload,omitempty"`
	PayloadBytes []byte            `json:"payload_base64,omitempty"`
	Unreadable   string            `json:"unreadable,omitempty"`
}

// NewMessage returns a message for a reader.
func NewMessage(m *outbox.DeadLetter, dead bool, d Detail) Message {
	j := Message{
		ID: m.ID, Dead: dead, Topic: m.Topic, Group: m.Group, Key: m.Key, Tries: m.Tries, EnqueuedAt: m.Enqueued, Age: m.Age.Seconds(), DiedAt: m.Died,
		Why: m.Why, ProviderRef: m.ProviderRef, Revision: m.Revision, PayloadSize: len(m.Payload),
	}
	if d == Names {
		j.HeaderNames = slices.Sorted(maps.Keys(m.Header))
	} else {
		j.Header = m.Header
	}
	if m.Settles != nil {
		k := NewKey(m.Settles.Ref)
		j.Settles = &k
	}
	if m.Err != nil {
		j.Unreadable = m.Err.Error()
	}
	switch {
	case d < Contents:
	case utf8.Valid(m.Payload):
		text := string(m.Payload)
		j.Payload = &text
	default:
		j.PayloadBytes = m.Payload
	}
	return j
}

// View returns the message for the command.
func (j *Message) View() MessageView {
	v := MessageView{DeadLetter: outbox.DeadLetter{Why: j.Why, ProviderRef: j.ProviderRef, Died: j.DiedAt, Revision: j.Revision}, size: &j.PayloadSize}
	v.ID, v.Topic, v.Group, v.Key, v.Tries, v.Enqueued = j.ID, j.Topic, j.Group, j.Key, j.Tries, j.EnqueuedAt
	v.Age, v.Header, v.Payload = seconds(j.Age), j.Header, j.PayloadBytes
	if j.Payload != nil {
		v.Payload = []byte(*j.Payload)
	}
	for _, name := range j.HeaderNames {
		if v.Header == nil {
			v.Header = map[string]string{}
		}
		v.Header[name] = "(hidden from the role read)"
	}
	if j.Settles != nil {
		ref, _ := ParseRef(j.Settles.Ref)
		v.Settles = &retrysafe.Record{Ref: ref}
	}
	if j.Unreadable != "" {
		v.Err = errors.New(j.Unreadable)
	}
	return v
}

// A MessageView is a message as a reader got it: whole, or without its payload.
type MessageView struct {
	outbox.DeadLetter
	size *int // nil: the payload is there
}

// PayloadSize returns how many bytes the payload has.
func (v *MessageView) PayloadSize() int {
	if v.size != nil {
		return *v.size
	}
	return len(v.Payload)
}

// MessageViews returns messages of a store.
func MessageViews(list []outbox.DeadLetter) []MessageView {
	all := make([]MessageView, len(list))
	for i := range list {
		all[i].DeadLetter = list[i]
	}
	return all
}

// Messages is a part of a list of messages, by their ids.
type Messages struct {
	Messages []Message `json:"messages"`
}

// A Receipt is what is kept of a message that was delivered.
type Receipt struct {
	ID          int64     `json:"id"`
	Topic       string    `json:"topic"`
	Key         string    `json:"key"`
	ProviderRef string    `json:"provider_ref,omitempty"`
	Settles     *Key      `json:"settles,omitempty"`
	DeliveredAt time.Time `json:"delivered_at"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// Receipts is a part of a list of receipts, by their ids.
type Receipts struct {
	Receipts []Receipt `json:"receipts"`
}

// NewReceipts returns receipts in JSON.
func NewReceipts(list []outbox.KeptReceipt) Receipts {
	all := Receipts{Receipts: []Receipt{}}
	for i := range list {
		r := &list[i]
		j := Receipt{r.ID, r.Topic, r.Key, r.ProviderRef, nil, r.Delivered, r.Expires}
		if r.Settled != (retrysafe.Ref{}) {
			k := NewKey(r.Settled)
			j.Settles = &k
		}
		all.Receipts = append(all.Receipts, j)
	}
	return all
}

// Kept returns the receipts as package outbox has them.
func (all *Receipts) Kept() (list []outbox.KeptReceipt) {
	for i := range all.Receipts {
		j := &all.Receipts[i]
		r := outbox.KeptReceipt{ID: j.ID, Topic: j.Topic, Key: j.Key, ProviderRef: j.ProviderRef, Delivered: j.DeliveredAt, Expires: j.ExpiresAt}
		if j.Settles != nil {
			r.Settled, _ = ParseRef(j.Settles.Ref)
		}
		list = append(list, r)
	}
	return list
}

// A Depth is how many messages an outbox has, and for how long. Failing is how many of
// those that wait have failed; it is -1 if the store cannot tell.
type Depth struct {
	Waiting    int     `json:"waiting"`
	Failing    int     `json:"failing"`
	Dead       int     `json:"dead"`
	Oldest     float64 `json:"oldest_seconds"`
	OldestDead float64 `json:"oldest_dead_seconds"`
}
