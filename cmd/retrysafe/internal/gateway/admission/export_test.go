package admission

import "io/fs"

func ContainerMemoryIn(root fs.FS) int64 { return containerMemory(root) }

// Accounts returns how many accounts are kept.
func Accounts(b *Budget) int { return kept(&b.tenants) + kept(&b.addresses) }

func kept[K comparable](t *table[K]) (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		n += len(s.accounts)
		s.Unlock()
	}
	return n
}

// Working returns how many consumers have a turn or wait for one.
func Working(b *Budget) int { return b.large.Consumers() + b.steps.Consumers() }

// Sources returns how many sources of large answers are remembered.
func Sources(b *Budget) int { return len(b.heavy.last) }
