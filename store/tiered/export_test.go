package tiered

import (
	"fmt"
	"time"
)

// SetClocks replaces the clocks of a cache, which tell the time since it was
// made: the monotonic one and the wall clock.
func SetClocks(s Store, now func() (run, wall time.Duration)) {
	of(s).now = func() (t instant) {
		t.run, t.wall = now()
		return t
	}
}

// Audit counts what is cached, and says what does not add up.
func Audit(s Store) error {
	for i := range of(s).shards {
		if err := of(s).shards[i].audit(); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	return nil
}

func (sh *shard) audit() error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var older *entry
	n, bytes := 0, int64(0)
	for e := sh.queue.oldest; e != nil; e = e.newer {
		if e.older != older {
			return fmt.Errorf("entry %d is linked to another than the one before it", n)
		}
		if sh.entries[e.hash] != e {
			return fmt.Errorf("entry %d is not found by its hash", n)
		}
		if size := sizeOf(&e.rec); e.size != size {
			return fmt.Errorf("entry %d is charged %d bytes, and has %d", n, e.size, size)
		}
		n, bytes, older = n+1, bytes+e.size, e
	}
	switch {
	case older != sh.queue.newest:
		return fmt.Errorf("the last of %d entries is not the newest", n)
	case n != len(sh.entries) || bytes != sh.queue.bytes:
		return fmt.Errorf("%d entries of %d bytes are queued, %d are found, %d bytes are charged", n, bytes, len(sh.entries), sh.queue.bytes)
	case bytes > sh.room:
		return fmt.Errorf("%d bytes are cached, there is room for %d", bytes, sh.room)
	}
	return nil
}

// Flights returns how many keys have calls below.
func Flights(s Store) (n int) {
	for i := range of(s).shards {
		sh := &of(s).shards[i]
		sh.mu.Lock()
		n += len(sh.flights)
		sh.mu.Unlock()
	}
	return n
}

func of(s Store) *store {
	if c, ok := s.(*counting); ok {
		return &c.store
	}
	return s.(*store)
}
