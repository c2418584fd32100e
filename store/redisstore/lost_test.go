package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// proxied opens a store through a proxy that fails as a test says.
func proxied(t *testing.T) (*redisstore.Store, *netfault.Proxy) {
	t.Helper()
	url, opts := shared(t)
	_ = url
	p, err := netfault.New(testservers.SharedRedis(t))
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return open(t, "redis://"+p.Addr(), opts), p
}

// cuts are the places at which connections break: after each byte of a reply, and all
// along a command.
func cuts() (plans []netfault.Plan) {
	for n := int64(0); n < 200; n += 3 {
		plans = append(plans, netfault.Once(netfault.AfterBytes(netfault.ToClient, n, netfault.Reset)))
	}
	for n := int64(0); n < 900; n += 29 {
		plans = append(plans, netfault.Once(netfault.AfterBytes(netfault.ToServer, n, netfault.Reset)))
	}
	return plans
}

// A reservation whose reply was lost, and which is sent again, recognises itself: whatever
// byte the connection broke at.
func TestW14_CreateWithALostReplyRecognisesItself(t *testing.T) {
	t.Parallel()
	s, p := proxied(t)
	for n, plan := range cuts() {
		w := newWrite(fmt.Sprint("key ", n))
		p.Plan(plan)
		var got retrysafe.Record
		err := eventually(t, "the reservation is confirmed", func(ctx context.Context) (err error) {
			got, err = s.Create(ctx, w)
			return err
		})
		if err != nil || got.Owner != w.Owner || got.Attempt != 1 {
			t.Fatalf("cut %d: Create sent again: %v, owner %v", n, err, got.Owner)
		}
		p.Plan(nil)
		other := newWrite(w.Key)
		if _, err := s.Create(t.Context(), other); !errors.Is(err, retrysafe.ErrExists) {
			t.Fatalf("cut %d: Create by another: got %v, want ErrExists", n, err)
		}
	}
}

// A settlement whose reply was lost was applied once or not at all: sent again it is
// applied, or it conflicts with itself and is shown its own answer.
func TestW42_SwapWithALostReplyIsAppliedOnce(t *testing.T) {
	t.Parallel()
	s, p := proxied(t)
	for n, plan := range cuts() {
		rec, err := s.Create(t.Context(), newWrite(fmt.Sprint("key ", n)))
		must(t, err)
		body := fmt.Sprint("answer ", n)
		p.Plan(plan)
		var got retrysafe.Record
		err = eventually(t, "the settlement is confirmed", func(ctx context.Context) (err error) {
			got, err = s.Swap(ctx, complete(rec, body))
			return err
		})
		p.Plan(nil)
		if err != nil && !errors.Is(err, retrysafe.ErrConflict) || got.State != retrysafe.StateCompleted || string(got.Result.Body) != body {
			t.Fatalf("cut %d: Swap sent again: %v, %v", n, err, got.State)
		}
		loaded, err := s.Load(t.Context(), rec.Ref)
		must(t, err)
		if loaded.Revision != got.Revision {
			t.Fatalf("cut %d: the settlement was applied twice: revisions %d and %d", n, got.Revision, loaded.Revision)
		}
	}
}

// A step whose context ends while the server hangs returns, and the caller learns no
// outcome from it.
func TestHangingServerEndsNoStepWithASentinel(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	must(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 200_000_000)
	defer cancel()
	w := newWrite("key")
	_, created := s.Create(ctx, w)
	_, loaded := s.Load(ctx, w.Ref)
	for what, err := range map[string]error{"Create": created, "Load": loaded} {
		if err == nil || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrExists) {
			t.Errorf("%s of a server that hangs: %v", what, err)
		}
	}
	must(t, server.Continue())
	err := eventually(t, "the server goes on", func(ctx context.Context) error {
		_, err := s.Create(ctx, w)
		return err
	})
	must(t, err)
}
