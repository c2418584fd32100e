package redisstore_test

import (
	"testing"
	"time"
)

// A step that is not sent in time has an error. No reply at all would be that of a key
// without a record.
func TestStepThatWasNotSentHasAnError(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	w := newWrite("k")
	if _, err := s.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if v, err := s.LoadGivenUp(t.Context(), w.Ref); v != nil || err == nil {
		t.Errorf("a Load that was not sent gets %v, %v", v, err)
	}
	if _, err := s.Load(t.Context(), w.Ref); err != nil {
		t.Errorf("a Load that is sent: %v", err)
	}
}

// A write that too few replicas have confirmed counts as none that was acknowledged: a server
// that is promoted without it has lost nothing.
func TestWriteWithoutItsReplicasIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	opts.MinReplicas, opts.Timeout = 1, 4*time.Second
	s := open(t, url, opts)
	w := newWrite("k")
	before := s.Acknowledged(w.Ref)
	if _, err := s.Create(t.Context(), w); err == nil {
		t.Fatal("Create on a server without replicas is confirmed")
	}
	if n := s.Acknowledged(w.Ref); n != before {
		t.Errorf("%d writes count as acknowledged, want %d", n, before)
	}
}
