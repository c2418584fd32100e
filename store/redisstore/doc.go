// Package redisstore keeps records in Redis 6.2 or newer, or in Valkey: one server, one
// behind Sentinel, or a Cluster. It is class D, best effort: such a server can lose a
// write that it has acknowledged, and then the operation of that key can run again.
//
// What it can lose, and when:
//
//   - A failover promotes a replica that does not have the last writes: replication is
//     asynchronous. [Options.MinReplicas] makes each step wait for replicas.
//   - A server that restarts has what its disk has: everything with "appendfsync always",
//     all but the last second with "everysec", little or nothing without the append-only
//     file. [Store.Durability] tells which.
//   - A server that evicts keys loses them one by one. [Open] refuses it.
//
// The store notices the loss of what it has itself seen acknowledged, and refuses every
// later step with [ErrDataLost]: each step is one script, which compares the mark of its
// part of the data before it does anything else. A promoted replica, or a server that
// comes back without an append-only file, is refused even if nothing seems to be missing,
// unless [Options.AcceptFailover] says otherwise.
//
// A step is one script and one round trip; steps that come together share both. A
// reply that was lost means "cannot say", and no command is ever sent a second time by the
// driver. The clock is the server's.
package redisstore
