package redisstore

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
)

// Key returns the name of the key that has a record.
func (s *Store) Key(ref retrysafe.Ref) string {
	i := idOf(ref)
	return s.keys[i.bucket()].record(i)
}

// Bucket returns the bucket of a record.
func Bucket(ref retrysafe.Ref) int { return idOf(ref).bucket() }

// Client returns the client of the node that has a record.
func (s *Store) Client(ref retrysafe.Ref) *redis.Client {
	s.topology.mu.RLock()
	defer s.topology.mu.RUnlock()
	return s.topology.buckets[idOf(ref).bucket()].client
}

// Slots returns the slots of all buckets.
func Slots(prefix string) map[int]string {
	slots := make(map[int]string)
	for b := range buckets {
		k := keysOf(prefix, b)
		slots[k.slot] = fmt.Sprint(b)
	}
	return slots
}

// SlotOf returns the slot of a tag.
var SlotOf = slotOf
