package misusetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// Acks tests that an acknowledgement which no store can apply fails alone: its message and
// the key that it settles stay as they are, and the others of the call are applied. Of two
// acknowledgements of one message the first counts.
func Acks(t *testing.T, s retrysafe.Store, box outbox.Store, enqueue func(...outbox.Message)) {
	t.Helper()
	rec, err := s.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "handed over"}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	list := func() []outbox.Delivery {
		t.Helper()
		list, err := box.Due(t.Context(), held.Shards, 100)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for _, name := range []string{"good", "no kind", "another kind", "no state", "shard below", "shard above", "twice", "settled"} {
		enqueue(outbox.Message{Topic: "t", Group: name, Payload: []byte(name)})
	}
	stateless, settled := rec.Update(), rec.Update()
	stateless.State = 0
	settled.State, settled.Term, settled.Result = retrysafe.StateCompleted, time.Hour, &retrysafe.Result{Status: 201}
	var acks []outbox.Ack
	want := map[int]error{}
	other := errors.New("any error") // stands for one that only this store has
	for _, d := range list() {
		a := outbox.Ack{ID: d.ID, Shard: d.Shard, Group: d.Group, Kind: outbox.AckDelivered, Tries: 1}
		switch d.Group {
		case "no kind":
			a.Kind, want[len(acks)] = 0, other
		case "another kind":
			a.Kind, want[len(acks)] = outbox.AckDead+1, other
		case "no state":
			a.Settle, want[len(acks)] = &stateless, other
		case "shard below":
			a.Shard.N, want[len(acks)] = -1, outbox.ErrFenced
		case "shard above":
			a.Shard.N, want[len(acks)] = outbox.Shards, outbox.ErrFenced
		case "settled":
			a.Settle = &settled
		}
		acks = append(acks, a)
		if d.Group == "twice" {
			a.Kind = outbox.AckDead
			acks = append(acks, a)
		}
	}
	ended, err := box.Ack(t.Context(), acks)
	if err != nil || len(ended) != len(acks) {
		t.Fatalf("Ack of %d = %d, %v", len(acks), len(ended), err)
	}
	for i, e := range ended {
		if want := want[i]; errors.Is(want, other) && e.Err == nil || !errors.Is(want, other) && !errors.Is(e.Err, want) {
			t.Errorf("%s: %v, want %v", acks[i].Group, e.Err, want)
		}
	}
	var left []string
	for _, d := range list() {
		left = append(left, d.Group)
	}
	slices.Sort(left)
	if !slices.Equal(left, []string{"another kind", "no kind", "no state", "shard above", "shard below"}) {
		t.Errorf("left are %q", left)
	}
	if dead, err := box.DeadLetters(t.Context(), 0, 10); err != nil || len(dead) != 0 {
		t.Errorf("dead are %+v, %v", dead, err)
	}
	if got, err := s.Load(t.Context(), rec.Ref); err != nil || got.State != retrysafe.StateCompleted {
		t.Errorf("the key is %v, %v", got.State, err)
	}
	for _, d := range list() { // one that waits to be sent again can be skipped
		if d.Group != "no state" {
			continue
		}
		again := []outbox.Ack{{ID: d.ID, Shard: d.Shard, Group: d.Group, Kind: outbox.AckRetry, Tries: 1, After: time.Hour, Why: "closed"}}
		if _, err := box.Ack(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if got, err := box.(outbox.Skipper).Skip(t.Context(), outbox.SkipRequest{ID: d.ID, Tries: 1, Settle: &stateless}); err == nil && got.Err == nil {
			t.Error("Skip with a record that has no state succeeds")
		}
		if failing, err := box.(outbox.Skipper).Failing(t.Context(), 0, 10); err != nil || len(failing) != 1 {
			t.Errorf("after a Skip that is refused %d messages wait, %v", len(failing), err)
		}
	}
}
