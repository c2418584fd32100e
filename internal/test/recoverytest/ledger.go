package recoverytest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe"
)

// A generation is one operation under a key: from its first attempt until the key
// is forgotten.
type generation struct {
	ref   retrysafe.Ref
	since int64 // CreatedAt in microseconds
}

func generationOf(r *retrysafe.Record) generation {
	return generation{r.Ref, r.CreatedAt.UnixMicro()}
}

// A ledger is the provider's own record of what has really happened.
type ledger struct {
	mu      sync.Mutex
	count   int
	effects map[generation][]string // receipts of unprotected effects
	refuses map[generation]int      // attempts up to this one are refused
	keyed   map[string]string       // receipts by downstream key
	asked   map[retrysafe.Ref]map[string]bool
}

func newLedger() *ledger {
	return &ledger{
		effects: make(map[generation][]string), refuses: make(map[generation]int),
		keyed: make(map[string]string), asked: make(map[retrysafe.Ref]map[string]bool),
	}
}

func (l *ledger) receipt() string {
	l.count++
	return fmt.Sprintf("receipt %d", l.count)
}

var errTombstoned = errors.New("the provider was told to refuse it")

// effect makes an unprotected effect: each call is one more.
func (l *ledger) effect(g generation, attempt int) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if attempt <= l.refuses[g] {
		return "", retrysafe.NotExecuted(errTombstoned)
	}
	r := l.receipt()
	l.effects[g] = append(l.effects[g], r)
	return r, nil
}

// charge makes an effect that a downstream key protects.
func (l *ledger) charge(ref retrysafe.Ref, key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked[ref] == nil {
		l.asked[ref] = make(map[string]bool)
	}
	l.asked[ref][key] = true
	if l.keyed[key] == "" {
		l.keyed[key] = l.receipt()
	}
	return l.keyed[key]
}

// found returns the receipt of the record's effect, if it has happened.
func (l *ledger) found(r *retrysafe.Record) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(r)
}

func (l *ledger) find(r *retrysafe.Record) (string, bool) {
	if r.Effects != retrysafe.EffectsUnprotected {
		receipt, ok := l.keyed[retrysafe.DownstreamKey("", r.Ref, charge)]
		return receipt, ok
	}
	if all := l.effects[generationOf(r)]; len(all) > 0 {
		return all[len(all)-1], true
	}
	return "", false
}

// tombstone makes the provider refuse all attempts at the record so far, unless one has
// happened: then it returns the receipt.
func (l *ledger) tombstone(r *retrysafe.Record) (receipt string, happened bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if receipt, happened = l.find(r); !happened {
		l.refuses[generationOf(r)] = max(l.refuses[generationOf(r)], r.Attempt)
	}
	return receipt, happened
}
