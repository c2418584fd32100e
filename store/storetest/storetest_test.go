package storetest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// A flaw is one way to break the contract, and the rules that must notice.
type flaw struct {
	name   string
	bend   func(*bent)
	breaks []string
	// only says that no other rule may break: the report names the one promise.
	only bool
}

func TestHonestStoreKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		// A peer that is the same store is the most honest one.
		h := newBent().harness()
		h.Peers = append(h.Peers, h.Store)
		return h
	})
}

// The time of the rules is virtual: no rule but the one that waits in vain sees its
// patience end, however busy the machine is.
func TestBrokenStoreIsToldWhichPromise(t *testing.T) {
	t.Parallel()
	promises := storetest.Promises(newBent().harness())
	for _, f := range slices.Concat(createFlaws, swapFlaws, writeFlaws, timeFlaws, contentFlaws, inquiryFlaws, listFlaws, damageFlaws, txFlaws, uniformFlaws, crashFlaws, changeFlaws) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			rules := f.breaks
			if f.only {
				rules = nil
			}
			var reports map[string]string
			synctest.Test(t, func(t *testing.T) {
				reports = storetest.Reports(t.Context(), func() storetest.Harness {
					b := newBent()
					f.bend(b)
					return b.harness()
				}, 5*time.Second, rules...)
			})
			for _, name := range f.breaks {
				report, ok := reports[name]
				if !ok {
					t.Errorf("rule %q did not notice", name)
				}
				if want := "broken promise: " + promises[name]; ok && !strings.HasPrefix(report, want) {
					t.Errorf("rule %q: got report %q, want %q first", name, report, want)
				}
			}
			for name, report := range reports {
				if !slices.Contains(f.breaks, name) && !slices.Contains(wide, name) {
					t.Errorf("rule %q noticed too:\n%s", name, report)
				}
				t.Logf("%s:\n%s", name, report)
			}
		})
	}
}

// wide are the rules that look at every field of a record after every step, so that they
// notice flaws which belong to another rule.
var wide = []string{"every step stores every field", "every step of a transaction stores every field"}

// Every rule must be able to fail, or it promises nothing.
func TestEveryRuleHasAFlawThatBreaksIt(t *testing.T) {
	t.Parallel()
	promises := storetest.Promises(newBent().harness())
	for _, f := range slices.Concat(createFlaws, swapFlaws, writeFlaws, timeFlaws, contentFlaws, inquiryFlaws, listFlaws, damageFlaws, txFlaws, uniformFlaws, crashFlaws, changeFlaws) {
		for _, name := range f.breaks {
			if _, ok := promises[name]; !ok {
				t.Errorf("flaw %q names a rule that does not exist: %q", f.name, name)
			}
			promises[name] = ""
		}
	}
	for name, reason := range promises {
		if reason != "" {
			t.Errorf("no flaw breaks rule %q", name)
		}
	}
}

// Rules that need more than the store offers are left out.
func TestHarnessDeclaresWhatTheStoreCanDo(t *testing.T) {
	t.Parallel()
	b := newBent()
	all, bare := b.harness(), storetest.Harness{Store: b}
	oneWriter, beginWaits := all, all
	oneWriter.OneWriter, beginWaits.BeginWaits = true, true
	for _, c := range []struct {
		name    string
		harness storetest.Harness
		rule    string
		runs    bool
	}{
		{"all", all, "times are the store's", true},
		{"bare", bare, "times are the store's", false},
		{"bare", bare, "due comes with the clock", true},
		{"bare", bare, "clock that is set back repeats no revision", false},
		{"all", all, "rollback leaves no trace", true},
		{"bare", bare, "rollback leaves no trace", false},
		{"one writer", oneWriter, "rollback leaves no trace", true},
		{"one writer", oneWriter, "reserve is exclusive and does not wait", true},
		{"one writer", oneWriter, "open transaction delays no other key", false},
		{"begin waits", beginWaits, "reserve is exclusive and does not wait", false},
		{"begin waits", beginWaits, "create of a reserved key is busy", false},
		{"begin waits", beginWaits, "one of two transactions commits", false},
		{"begin waits", beginWaits, "swap does not overtake a transaction", true},
		{"begin waits", beginWaits, "open transaction delays no other key", true},
		{"all", all, "reserve is exclusive and does not wait", true},
		{"all", all, "open transaction delays no other key", true},
		{"all", all, "damaged record is refused", true},
		{"bare", bare, "damaged record is refused", false},
		{"bare", bare, "damaged record is refused in a transaction", false},
		{"bare", bare, "what was confirmed survives a crash", false},
		{"all", all, "announced swap is told", true},
		{"no feed", storetest.Harness{Store: struct{ storeOnly }{b}}, "announced swap is told", false},
		{"no counter", storetest.Harness{Store: struct{ storeOnly }{b}}, "count follows the records", false},
	} {
		if _, runs := storetest.Promises(c.harness)[c.rule]; runs != c.runs {
			t.Errorf("%s: rule %q runs: got %t, want %t", c.name, c.rule, runs, c.runs)
		}
	}
}

// The rules wait by the store's own clock when the harness cannot advance it.
func TestRulesWaitByTheStoresClock(t *testing.T) {
	t.Parallel()
	reports := storetest.Reports(t.Context(), func() storetest.Harness {
		return storetest.Harness{Store: memstore.New(nil), MaxBody: 1000}
	}, 30*time.Second)
	for name, report := range reports {
		t.Errorf("%s: %s", name, report)
	}
}
