package outbox

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// The end of a message settles its key whatever evidence came about the key before: never
// with a write that names no record, and never against an open dispute.
func TestSettledWhateverIsKnownOfTheKey(t *testing.T) {
	t.Parallel()
	handed := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "acct_1", Key: "k"}, Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress,
		Revision: 7, Owner: retrysafe.Owner{1}, ProviderRef: "ch_1",
	}
	disputed := handed
	disputed.Inquiry.Disputed = true
	unreadable := retrysafe.Record{Ref: handed.Ref}
	for _, c := range []struct {
		name     string
		rec      retrysafe.Record
		kind     AckKind
		receipt  Receipt
		want     retrysafe.State
		disputed bool
		note     string
	}{
		{"delivered", handed, AckDelivered, Receipt{ProviderRef: "ch_1"}, retrysafe.StateCompleted, false, "was delivered"},
		{"a dead letter", handed, AckDead, Receipt{}, retrysafe.StateUnknown, false, "dead letter"},
		{"an answer without a status", handed, AckDelivered, Receipt{Answer: &retrysafe.Result{}}, retrysafe.StateUnknown, false, "status"},
		{"another effect than the record's", handed, AckDelivered, Receipt{ProviderRef: "ch_2"}, retrysafe.StateUnknown, true, "was delivered"},
		{"disputed before", disputed, AckDelivered, Receipt{ProviderRef: "ch_1"}, retrysafe.StateUnknown, true, "disputed"},
		{"disputed, and a dead letter", disputed, AckDead, Receipt{}, retrysafe.StateUnknown, true, "disputed"},
	} {
		w := settled(c.rec, &Ack{Kind: c.kind, Why: "refused"}, &c.receipt)
		switch {
		case w == nil || w.Ref != c.rec.Ref || w.Expect != c.rec.Fence():
			t.Errorf("%s: the write is %+v, want one of the key with its fence", c.name, w)
		case w.State != c.want || w.Inquiry.Disputed != c.disputed || w.Inquiry.Dead != (c.want == retrysafe.StateUnknown):
			t.Errorf("%s: the key becomes %s, dead %t, disputed %t", c.name, w.State, w.Inquiry.Dead, w.Inquiry.Disputed)
		case c.want == retrysafe.StateUnknown && w.Term < never:
			t.Errorf("%s: an operator has to settle the key, and it is due in %v", c.name, w.Term)
		case len(w.Inquiry.Notes) != 1 || !strings.Contains(w.Inquiry.Notes[0].Text, c.note):
			t.Errorf("%s: notes %+v, want one with %q", c.name, w.Inquiry.Notes, c.note)
		}
	}
	if w := settled(unreadable, &Ack{Kind: AckDelivered}, &Receipt{}); w != nil {
		t.Errorf("a record that cannot be read becomes %+v", w)
	}
}

// A message whose key has another owner by now settles nothing: the attempt in progress
// is not the one that has enqueued it.
func TestMessageLeavesTheAttemptOfAnotherOwner(t *testing.T) {
	t.Parallel()
	handed := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "acct_1", Key: "k"}, Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress,
		Revision: 7, Owner: retrysafe.Owner{1}, Attempt: 1,
	}
	ack := Ack{Kind: AckDelivered}
	ack.Settle = settled(handed, &ack, &Receipt{})
	renewed := handed
	renewed.Revision++
	if w := resettled(renewed, &ack, &Receipt{}); w == nil || w.State != retrysafe.StateCompleted || w.Expect != renewed.Fence() {
		t.Errorf("the key that the message still owns gets %+v", w)
	}
	other := renewed
	other.Owner, other.Attempt = retrysafe.Owner{2}, 2
	if w := resettled(other, &ack, &Receipt{}); w != nil {
		t.Errorf("the attempt of another owner becomes %s", w.State)
	}
}

// A message that was delivered although its key was released meanwhile, or happened under
// another id, leaves a dispute behind; one that says nothing new leaves the key as it is.
func TestDeliveryAgainstASettledKeyIsADispute(t *testing.T) {
	t.Parallel()
	key := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "acct_1", Key: "k"}, Version: retrysafe.RecordVersion,
		Revision: 7, Owner: retrysafe.Owner{1}, Attempt: 1, ProviderRef: "ch_1",
	}
	in := func(state retrysafe.State) retrysafe.Record {
		r := key
		r.State = state
		return r
	}
	for _, c := range []struct {
		name string
		now  retrysafe.Record
		ref  string
		want bool
	}{
		{"released meanwhile", in(retrysafe.StateRetryable), "ch_1", true},
		{"unknown, and under another id", in(retrysafe.StateUnknown), "ch_2", true},
		{"completed meanwhile", in(retrysafe.StateCompleted), "ch_1", false},
	} {
		ack := Ack{Kind: AckDelivered}
		receipt := Receipt{ProviderRef: c.ref}
		ack.Settle = settled(in(retrysafe.StateInProgress), &ack, &receipt)
		w := resettled(c.now, &ack, &receipt)
		switch {
		case !c.want && w != nil:
			t.Errorf("%s: the key becomes %+v", c.name, w)
		case c.want && (w == nil || w.State != retrysafe.StateUnknown || !w.Inquiry.Disputed || w.Expect != c.now.Fence()):
			t.Errorf("%s: the write is %+v, want a dispute", c.name, w)
		}
	}
}
