package sealed_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

func otherIndex(t testing.TB) *sealed.Keyring {
	t.Helper()
	keys, err := sealed.NewKeyring(secret("another index"), 1, numbered(1))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func cancelled(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// sealedWith returns the number of the key that an envelope names.
func sealedWith(envelope []byte) uint32 { return binary.BigEndian.Uint32(envelope[1:]) }

// Through a rotation every node reads what the others write: the new key is
// known everywhere before it writes anywhere, and removed only at the end.
func TestW59KeyRotation(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	before := over(t, below, ring(t, 1, 1))
	learnt := over(t, below, ring(t, 1, 1, 2))
	turned := over(t, below, ring(t, 2, 1, 2))
	after := over(t, below, ring(t, 2, 2))

	old := full("tenant-a", "order-old")
	old.State, old.Result = retrysafe.StateInProgress, nil
	create(t, before, old)
	fresh := full("tenant-a", "order-new")
	fresh.Owner = owner(2)
	create(t, turned, fresh)
	if got := sealedWith(lowered(t, below, owner(2)).KeyText); got != 2 {
		t.Errorf("a new record is sealed with key %d, want the current 2", got)
	}

	same(t, load(t, turned, old.Ref), old.Record)
	same(t, load(t, learnt, fresh.Ref), fresh.Record)
	same(t, load(t, after, fresh.Ref), fresh.Record)

	// The owner of an old attempt settles it on a node that has turned: what it
	// writes is under the new key, what it keeps stays under the old one.
	w := load(t, turned, old.Ref).Update()
	w.State, w.Result, w.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 201, Body: []byte("done")}, w.Retain
	if _, err := turned.Swap(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	raw := lowered(t, below, owner(1))
	if got := []uint32{sealedWith(raw.KeyText), sealedWith(raw.Request), sealedWith(raw.Result.Body)}; got[0] != 1 || got[1] != 1 || got[2] != 2 {
		t.Errorf("after a step key text, request and result are under keys %v, want 1, 1, 2", got)
	}
	same(t, load(t, learnt, old.Ref), w.Record)

	// A claim leaves nothing under the old key.
	w = load(t, turned, old.Ref).Update()
	w.Overwrite, w.Owner, w.Attempt = true, owner(3), 1
	if _, err := turned.Swap(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	same(t, load(t, after, old.Ref), w.Record)
}

// With its key gone a record is refused, in words that name the key, and its
// operation does not run again. Others are not affected, and with the key back
// it is as it was.
func TestW61MissingKey(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	both := over(t, below, ring(t, 2, 1, 2))
	without := over(t, below, ring(t, 2, 2))

	retryable := full("tenant-a", "order-1")
	retryable.State, retryable.Result = retrysafe.StateRetryable, nil
	completed := full("tenant-a", "order-2")
	completed.Owner = owner(2)
	for _, r := range []retrysafe.Write{retryable, completed} {
		create(t, over(t, below, ring(t, 1, 1)), r)
	}
	fresh := full("tenant-a", "order-3")
	fresh.Owner = owner(3)
	create(t, both, fresh)

	for _, r := range []retrysafe.Write{retryable, completed} {
		unreadableEverywhere(t, without, r.Record)
		_, err := without.Load(t.Context(), r.Ref)
		if !strings.Contains(err.Error(), "sealed with key 1, which is not in the keyring") {
			t.Errorf("error %q does not tell the operator which key is missing", err)
		}
		if bytes.Contains([]byte(err.Error()), []byte(r.Key)) {
			t.Errorf("error %q shows the key's text", err)
		}

		engine, err := retrysafe.New(without, nil)
		if err != nil {
			t.Fatal(err)
		}
		call := retrysafe.Call{Ref: r.Ref, Operation: r.Operation, Fingerprint: r.Fingerprint}
		_, err = engine.Do(t.Context(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			t.Errorf("the operation of %s ran again because its key is missing", r.Key)
			return retrysafe.Result{}, nil
		})
		refused(t, "do", err)
	}
	same(t, load(t, without, fresh.Ref), fresh.Record)
	same(t, load(t, both, retryable.Ref), retryable.Record)
	same(t, load(t, both, completed.Ref), completed.Record)
}

// Another secret under the same number does not open what the first has sealed.
func TestAnotherSecretUnderTheSameNumber(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	r := create(t, s, full("tenant-a", "order-1"))
	keys, err := sealed.NewKeyring(secret("index"), 1, map[uint32][]byte{1: secret("an impostor")})
	if err != nil {
		t.Fatal(err)
	}
	unreadableEverywhere(t, over(t, below, keys), r)
}

// Check refuses to start over records that were sealed with other secrets or not
// at all, for no key of theirs would be found.
func TestCheck(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	if err := sealed.Check(t.Context(), below, otherIndex(t)); err != nil {
		t.Errorf("Check of an empty store = %v, want nil", err)
	}
	create(t, s, full("tenant-a", "order-1"))
	if err := sealed.Check(t.Context(), below, ring(t, 2, 1, 2)); err != nil {
		t.Errorf("Check with the right secrets = %v, want nil", err)
	}
	refused(t, "Check with another index secret", sealed.Check(t.Context(), below, otherIndex(t)))
	refused(t, "Check without the key", sealed.Check(t.Context(), below, ring(t, 2, 2)))

	plain := memstore.New(nil)
	create(t, plain, full("tenant-a", "order-1"))
	refused(t, "Check of a store that is not sealed", sealed.Check(t.Context(), plain, ring(t, 1, 1)))

	ctx, cancel := cancelled(t)
	defer cancel()
	if err := sealed.Check(ctx, below, ring(t, 1, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Check in a cancelled context = %v, want context.Canceled", err)
	}
}
