package admission

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// An account is what one consumer holds.
type account struct {
	bytes, requests atomic.Int64
	claims          int // that refer to it; guarded by its shard
}

const (
	shards = 64
	// keptAccounts is how many accounts a shard keeps, so that a consumer whose requests
	// come one after the other needs no new one each time. Beyond it an account is
	// dropped with its last claim: invented tenants take no memory.
	keptAccounts = 64
)

// A table has the accounts of one kind of consumers. Requests of different consumers
// rarely meet at a lock.
type table[K comparable] struct {
	seed   maphash.Seed
	shards [shards]struct {
		sync.Mutex
		accounts map[K]*account
	}
}

func (t *table[K]) init() { t.seed = maphash.MakeSeed() }

// get returns the account of a consumer until put is called.
func (t *table[K]) get(of K) *account {
	s := &t.shards[maphash.Comparable(t.seed, of)%shards]
	s.Lock()
	defer s.Unlock()
	a := s.accounts[of]
	if a == nil {
		if s.accounts == nil {
			s.accounts = make(map[K]*account)
		}
		a = new(account)
		s.accounts[of] = a
	}
	a.claims++
	return a
}

func (t *table[K]) put(of K, a *account) {
	s := &t.shards[maphash.Comparable(t.seed, of)%shards]
	s.Lock()
	defer s.Unlock()
	if a.claims--; a.claims == 0 && len(s.accounts) > keptAccounts {
		delete(s.accounts, of)
	}
}
