// Package redistier keeps answers in a Redis server that many processes share, in front of
// any store. It is the second tier: package tiered has the first, in each process's memory.
//
//	below, err := pgstore.Open(ctx, url, nil)
//	shared, err := redistier.Open("redis://cache:6379", below, nil)
//	cache := tiered.New(shared, nil)
//	engine, err := retrysafe.New(cache, nil)
//	go cache.Run(ctx) // drops what operators change, in both tiers
//
// It helps if the same finished operation is retried at many processes, and the store below
// is slow to read from or far away. It costs each new key a round trip to Redis.
//
// # What is kept there
//
// Completed records that are readable and not due. Create and Load of such a key are
// answered by Redis. Every reservation goes to the store below, and so do Swap, List, Purge
// and Count. That Redis has no record of a key says nothing. So the server needs no
// append-only file and may evict: a record that is gone is read from the store below. A
// server that fails, or is slow, is left out for a second.
//
// # What may be stale
//
// A Completed record changes before it is due only by an operator. A process that follows
// the changes of the store below, by [Store.Changes] (as tiered's Run does), drops them from
// Redis too, and uses only records that were read from the store below after it began to
// follow. So a change is visible to it within a second. If it has not been able to read the
// changes for five seconds it does not use Redis, until it can. A process that follows no
// changes sees one after [Options.MaxAge] at the latest.
//
// A record that was read before a change and arrives after it is not stored: a change leaves
// a mark for a minute, and a record is stored only if it was read after the mark, and less
// than half a minute ago, by the clock of the Redis server. A server that fails over can lose
// that mark. Then the old answer is given until MaxAge; nothing runs because of it.
//
// Until the change was read, one call may get the new record and a later one the old answer.
//
// # With sealed records
//
// Records are stored in Redis as they are given here, so this store stands below a sealing
// one: sealed.New(shared, keys). [Open] refuses a store that seals.
package redistier
