package e2e_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
)

func observing(c *config) { c.Observe = true }

// found returns the notices since the last call of found.
func (s *service) found() []rpckey.Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.notices
	s.notices = nil
	return all
}

// observed fails unless exactly this was found, and not enforced.
func (s *service) observed(t *testing.T, code string) {
	t.Helper()
	if got := s.found(); len(got) != 1 || got[0].Code != code || got[0].Enforced || !strings.Contains(got[0].Procedure, "PayService/") {
		t.Errorf("found %+v, want one %s that is not enforced", got, code)
	}
}

// A call over the limit is refused before anything is reserved.
func TestRequestOverTheLimitReservesNothing(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.MaxRequest = 64 })
		large := request{key: key, message: &payv1.ChargeRequest{Amount: 1, Currency: strings.Repeat("x", 100)}}
		got := c.call(t.Context(), large)
		got.refused(t, codes.ResourceExhausted, "body-too-large")
		if !strings.Contains(got.text, "The limit is 64 bytes.") {
			t.Errorf("it says %q", got.text)
		}
		s.untouched(t)
		if got := s.found(); len(got) != 1 || got[0].Code != "body-too-large" || !got[0].Enforced {
			t.Errorf("found %+v", got)
		}
		c.call(t.Context(), pay(key, 1)).is(t, 1, false) // the key is free
	})
}

// In observe mode every call runs and gets the handler's own answer, and what a guard
// would have refused or replayed is reported.
func TestObserveEnforcesNothing(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, observing, func(c *config) { c.MaxRequest = 64 })
		n := 0
		runs := func(code string, r request) {
			t.Helper()
			n++
			got := c.call(t.Context(), r)
			got.is(t, n, false)
			if values := got.header.Get(rpckey.MetadataExpires); len(values) > 0 || len(got.header.Get("x-many")) != 2 || len(got.trailer.Get("x-end")) != 1 {
				t.Errorf("%s: header %v, trailer %v, want the handler's own", code, got.header, got.trailer)
			}
			if code == "" {
				if got := s.found(); len(got) != 0 {
					t.Errorf("found %+v", got)
				}
				return
			}
			s.observed(t, code)
		}
		runs("key-missing", pay("", 1))
		runs("key-malformed", pay("a, b", 1))
		runs("body-too-large", request{key: key, message: &payv1.ChargeRequest{Currency: strings.Repeat("x", 100)}})
		anonymous := pay(key, 1)
		anonymous.meta = map[string]string{"x-tenant": "anonymous"}
		runs("caller-unidentified", anonymous)
		runs("", pay(key, 1))
		runs("replay", pay(key, 1))
		runs("key-reused", pay(key, 2))
		if r := s.state(t, key); r.State != retrysafe.StateCompleted || !r.Result.Omitted || r.Result.Status != http.StatusOK {
			t.Errorf("the record is %s, %+v", r.State, r.Result)
		}
		s.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		runs("store-unavailable", pay(other, 1))
		if log := s.log.String(); strings.Contains(log, "was not executed") {
			t.Errorf("the log says of a call that ran: %s", log)
		}
		if o := c.watch(t.Context(), false); o.code != codes.OK {
			t.Errorf("a stream: %s %q", o.code, o.text)
		}
		s.observed(t, "stream-unsupported")
		s, c = tr.start(t, observing, func(c *config) { c.Optional = true })
		n = 0
		runs("", pay("", 1))
	})
}

// A key that was observed is not run again by a guard that enforces, and one whose call
// would not have been stored is free.
func TestObservedKeysStayUsed(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		observed, c := tr.start(t, observing)
		c.call(t.Context(), pay(key, 1)).is(t, 1, false)
		observed.use(func(context.Context, *order) (*payv1.ChargeResponse, error) {
			return nil, &fault{code: codes.Internal, text: "a defect"}
		})
		if o := c.call(t.Context(), pay(other, 1)); o.code != codes.Internal || o.text != "a defect" {
			t.Errorf("got %s %q", o.code, o.text)
		}
		s, c := tr.start(t, func(c *config) { c.store = observed.mem })
		c.call(t.Context(), pay(key, 1)).refused(t, codes.AlreadyExists, "response-not-stored")
		c.call(t.Context(), pay(key, 2)).refused(t, codes.FailedPrecondition, "key-reused")
		c.call(t.Context(), pay(other, 1)).is(t, 1, false)
		s.ranTimes(t, 1)
	})
}

// A handler that takes its transaction from the context still gets one.
func TestObserveRunsInATransaction(t *testing.T) {
	t.Parallel()
	s, b, c := inTx(t, transports[0], func(ctx context.Context, b *bank, o *order) (*payv1.ChargeResponse, error) {
		return b.chargeInTx(ctx, o)
	}, observing)
	for range 2 {
		if o := c.call(t.Context(), pay(key, 1)); o.code != codes.OK || o.replayed() {
			t.Errorf("got %s %q", o.code, o.text)
		}
	}
	b.has(t, 2)
	s.observed(t, "replay")
}
