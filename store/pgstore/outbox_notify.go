package pgstore

import "sync"

// listeners are the workers of this process that want to know of commits with messages.
type listeners struct {
	mu   sync.Mutex
	wake map[*byte]func()
}

// NotifyCommits implements [outbox.CommitNotifier]. The store says so of transactions that
// it commits: those of [Store.BeginTx], which are those of retrysafe.DoTx and
// retrysafe.PhaseTx, and those that end by [Tx.Commit].
func (b *Outbox) NotifyCommits(wake func()) (stop func()) {
	l, key := &b.listeners, new(byte)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake == nil {
		l.wake = make(map[*byte]func())
	}
	l.wake[key] = wake
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.wake, key)
	}
}

// notify tells the workers that messages may have been committed.
func (l *listeners) notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, wake := range l.wake {
		wake()
	}
}
