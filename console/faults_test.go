package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/operator"
)

// withFaults puts a store that can fail below the service.
func withFaults(t *testing.T, s *site) (*site, *faultstore.Store) {
	t.Helper()
	faulty := faultstore.New(s.store)
	service, err := operator.New(faulty, &operator.Options{StoreTimeout: 200 * time.Millisecond})
	must(t, err)
	return start(t, func(o *console.Options) { o.Service = service }), faulty
}

// A store that does not answer is a 503 without the store's own words, which are in the
// log.
func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	s := start(t)
	r, path := s.record("k", retrysafe.StateUnknown)
	broken, faults := withFaults(t, s)
	faults.Plan(faultstore.FailAll(faultstore.LoseRequest))
	for _, p := range []string{"/keys", path, "/groups", "/audit", "/survey", "/batches/some"} {
		a := broken.wants(broken.send(anna, "GET", p, nil), 503, p)
		if a.at("code") != "store-unavailable" || strings.Contains(a.text, "injected") {
			t.Errorf("%s: got %s", p, a.text)
		}
	}
	act := map[string]any{"id": "release-1", "revision": r.Revision, "why": "not there"}
	a := broken.send(anna, "POST", path+"/release", act)
	if a.status != 503 && a.status != 500 || strings.Contains(a.text, "injected") {
		t.Errorf("an action: got %d %s", a.status, a.text)
	}
	if log := broken.log.String(); !strings.Contains(log, "injected") || strings.Contains(log, anna) || strings.Contains(log, "key=k") {
		t.Errorf("the log is\n%s", log)
	}
	faults.Plan(nil)
	broken.wants(broken.send(anna, "POST", path+"/release", act), 200, "the same action later")
	now, err := s.service.Show(t.Context(), r.Ref)
	must(t, err)
	if now.State != retrysafe.StateRetryable {
		t.Errorf("the record is %v", now.State)
	}
}

// An action whose replies are lost may have been done. The answer says so with the id, and
// the same request tells.
func TestOutcomeOfAnActionIsUnknown(t *testing.T) {
	t.Parallel()
	s := start(t)
	r, path := s.record("k", retrysafe.StateUnknown)
	broken, faults := withFaults(t, s)
	swapped := false
	faults.Plan(func(step faultstore.Step) faultstore.Fault {
		switch {
		case step.Write.Ref != r.Ref:
			return faultstore.None
		case step.Op == faultstore.Swap:
			swapped = true
			return faultstore.LoseReply
		case swapped: // it cannot be read, either
			return faultstore.LoseRequest
		default:
			return faultstore.None
		}
	})
	act := map[string]any{"revision": r.Revision, "why": "not there"}
	a := broken.wants(broken.send(anna, "POST", path+"/release", act), 500, "an action without replies")
	id := strings.Split(fmt.Sprint(a.at("detail")), `"`)
	if a.at("code") != "outcome-unknown" || len(id) != 3 {
		t.Fatalf("got %s", a.text)
	}
	faults.Plan(nil)
	act["id"] = id[1]
	broken.wants(broken.send(anna, "POST", path+"/release", act), 200, "the same action with its id")
	entries, err := s.service.Audit(t.Context(), operator.AuditFilter{Ref: r.Ref})
	must(t, err)
	if len(entries) != 1 || entries[0].Outcome != operator.StatusDone {
		t.Errorf("the audit has %+v", entries)
	}
}
