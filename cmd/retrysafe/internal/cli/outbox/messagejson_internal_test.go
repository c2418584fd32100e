package outbox

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/outbox"
)

// A script gets all of a message, and its payload if it asks for that.
func TestMessageInJSONHasEveryField(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	ref := retrysafe.Ref{Scope: "s", Key: "k"}
	m := adminwire.MessageView{DeadLetter: outbox.DeadLetter{
		Delivery: outbox.Delivery{
			ID: 1, Tries: 2, Enqueued: at,
			Message: outbox.Message{
				Topic: "topic", Group: "group", Key: "key", Header: map[string]string{"A": "b"}, Payload: []byte("text"),
				Settles: &retrysafe.Record{Ref: ref},
			},
		},
		Why: "why", ProviderRef: "ch_1", Died: at.Add(time.Hour), Revision: 3,
	}}
	m.Err = errors.New("sealed")
	settles := keyref.NewJSON(ref, false)
	want := messageJSON{
		ID: 1, Dead: true, Topic: "topic", Group: "group", Key: "key", Tries: 2, EnqueuedAt: at, DiedAt: at.Add(time.Hour), Why: "why", ProviderRef: "ch_1",
		Revision: 3, Settles: &settles, Header: map[string]string{"A": "b"}, PayloadSize: 4, Unreadable: "sealed",
	}
	if got := newMessageJSON(&m, true, false); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	want.Payload, want.Dead = "text", false
	if got := newMessageJSON(&m, false, true); !reflect.DeepEqual(got, want) {
		t.Errorf("with its payload got\n%+v, want\n%+v", got, want)
	}
	for i := range reflect.TypeFor[messageJSON]().NumField() {
		if f := reflect.TypeFor[messageJSON]().Field(i); reflect.ValueOf(want).Field(i).IsZero() && f.Name != "PayloadBytes" && f.Name != "Dead" {
			t.Errorf("%s is not tested here", f.Name)
		}
	}
	m.Payload = []byte("\xff")
	want.Payload, want.PayloadBytes, want.PayloadSize = "", m.Payload, 1
	if got := newMessageJSON(&m, false, true); !reflect.DeepEqual(got, want) {
		t.Errorf("with a payload that is no text got\n%+v, want\n%+v", got, want)
	}
}
