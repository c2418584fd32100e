package keys

import (
	"reflect"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/outbox"
)

// A script gets all of a record, and the body of its answer if it asks for that.
func TestRecordInJSONHasEveryField(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 11, 18, hour, 0, 0, 0, time.UTC) }
	r := adminwire.View{Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Version: retrysafe.RecordVersion, Operation: "POST /a", State: retrysafe.StateUnknown,
		Inquiry: retrysafe.Inquiry{Dead: true, Disputed: true, Tries: 4}, Attempt: 2, Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, Revision: 3,
		CreatedAt: at(1), UpdatedAt: at(2), Deadline: at(3), ReadAt: at(4), Request: []byte("request"),
		Checkpoint: retrysafe.Checkpoint{Phase: "phase"}, ProviderRef: "ch_1", Reason: "status 502: gone",
		Result: &retrysafe.Result{Status: 201, Header: map[string][]string{"A": {"b"}}, Body: []byte("paid"), Omitted: true},
	}}
	want := recordJSON{
		JSON: keyref.NewJSON(r.Ref, false), Operation: "POST /a", State: "unknown", Due: r.Due(), Dead: true, Disputed: true, Attempt: 2,
		Effects: retrysafe.EffectsKeyed.String(), Lapse: retrysafe.LapseRerun.String(), Revision: 3,
		CreatedAt: at(1), UpdatedAt: at(2), Deadline: at(3), ReadAt: at(4), Request: 7, Phase: "phase", ProviderRef: "ch_1", Reason: "status 502: gone", Tries: 4,
		Answer: &answerJSON{Status: 201, Headers: map[string][]string{"A": {"b"}}, Omitted: true, BodySize: 4},
	}
	got := newRecordJSON(&r, false, false)
	want.Upstream, want.Notes, want.Steps = got.Upstream, got.Notes, got.Steps // tests of keys show have them
	if !want.Due || !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	want.JSON, want.Answer.Body = keyref.NewJSON(r.Ref, true), "paid"
	if got := newRecordJSON(&r, true, true); !reflect.DeepEqual(got, want) {
		t.Errorf("hashed, with its body, got\n%+v, want\n%+v", got, want)
	}
	r.Result.Body = []byte("\xff")
	want.Answer.Body, want.Answer.BodyBytes, want.Answer.BodySize = "", r.Result.Body, 1
	if got := newRecordJSON(&r, true, true); !reflect.DeepEqual(got, want) {
		t.Errorf("with a body that is no text got\n%+v, want\n%+v", got, want)
	}
}

func TestReceiptInJSONHasEveryField(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	got := newReceiptJSON(&outbox.KeptReceipt{ID: 1, Topic: "topic", Key: "key", ProviderRef: "ch_1", Delivered: at, Expires: at.Add(time.Hour)})
	if want := (receipt{Message: 1, Topic: "topic", Key: "key", ProviderRef: "ch_1", DeliveredAt: at, ExpiresAt: at.Add(time.Hour)}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
