package mysqlstore_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// firstOfRow finds the id of a key, with which its row of values begins.
var firstOfRow = regexp.MustCompile(`\(x'([0-9a-f]{32})',x'`)

// Reservations and answers that wait together are one transaction. Each caller gets what
// became of its own step, all of it is committed when the callers are told, and the keys of
// a statement are in the order of their ids, in which other processes lock them too.
func TestStepsThatWaitTogetherAreOneTransaction(t *testing.T) {
	t.Parallel()
	dsn := testservers.SharedMariaDB(t)
	proxy, err := netfault.New(addrOf(t, dsn))
	must(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	s := open(t, through(t, dsn, proxy.Addr()), &mysqlstore.Options{Timeout: patience})
	const each = 8
	reserved := make([]retrysafe.Record, each)
	for i := range reserved {
		reserved[i], err = s.Create(t.Context(), fresh(fmt.Sprint("old ", i)))
		must(t, err)
	}
	before := s.BatchStats()
	p, gate := new(tap), make(chan struct{})
	proxy.Plan(func(c netfault.Chunk) netfault.Verdict {
		<-gate // the first batch is held up, so that the others wait for it
		return p.plan(c)
	})
	var all sync.WaitGroup
	step := func(what string, state retrysafe.State, body string, do func() (retrysafe.Record, error)) {
		all.Go(func() {
			r, err := do()
			if err != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			got := ""
			if r.Result != nil {
				got = string(r.Result.Body)
			}
			if r.Key != what || r.State != state || got != body {
				t.Errorf("%s has got %q in state %v with the answer %q", what, r.Key, r.State, got)
			}
		})
	}
	step("first", retrysafe.StateInProgress, "", func() (retrysafe.Record, error) { return s.Create(t.Context(), fresh("first")) })
	within(t, patience, "the first batch is under way", func() bool { return s.BatchStats().InFlight == 1 })
	for i := range each {
		old, body := fmt.Sprint("old ", i), fmt.Sprint("answer ", i)
		step(old, retrysafe.StateCompleted, body, func() (retrysafe.Record, error) { return s.Swap(t.Context(), done(reserved[i], body)) })
		key := fmt.Sprint("new ", i)
		step(key, retrysafe.StateInProgress, "", func() (retrysafe.Record, error) { return s.Create(t.Context(), fresh(key)) })
	}
	within(t, patience, "the steps wait", func() bool {
		stats := s.BatchStats()
		return stats.Requests-before.Requests+uint64(stats.Waiting) == 2*each+1
	})
	close(gate)
	all.Wait()
	// By another connection: it sees nothing of a transaction that is still open.
	for state, want := range map[retrysafe.State]int{retrysafe.StateCompleted: each, retrysafe.StateInProgress: each + 1} {
		if n := one[int](t, connect(t, dsn), `SELECT COUNT(*) FROM retrysafe_keys WHERE state = ?`, int64(state)); n != want {
			t.Errorf("%d keys are committed in state %v, want %d", n, state, want)
		}
	}
	joint := 0
	for _, text := range p.take() {
		if strings.Count(text, "INSERT INTO retrysafe_keys") == 2 && strings.Contains(text, "COMMIT") {
			joint++
		}
		for statement := range strings.SplitSeq(text, ";") {
			var ids []string
			for _, found := range firstOfRow.FindAllStringSubmatch(statement, -1) {
				ids = append(ids, found[1])
			}
			if !slices.IsSorted(ids) {
				t.Errorf("the keys of a statement are not in the order of their ids: %v", ids)
			}
		}
	}
	if joint == 0 {
		t.Error("no transaction has both reservations and answers")
	}
}
