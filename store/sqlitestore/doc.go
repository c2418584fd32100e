// Package sqlitestore keeps records in a SQLite database: one file, no server,
// durable. It is the embedded default, for one machine; several processes may
// share the file.
//
// A step is durable when it returns: the database runs with a write-ahead log and
// synchronous=FULL. SQLite has one writer at a time. Steps that arrive at the same time
// share one transaction and one flush (group commit). A replay takes no lock and waits
// for no writer.
//
// [Store.Tx] joins a transaction of the caller's over the same database, so that
// effects and answer commit together. Begin such a transaction IMMEDIATE: SQLite may
// refuse the write lock to a transaction that has read before.
//
// [Tx.Enqueue] adds messages to such a transaction. Workers of package outbox deliver
// them from [Store.Outbox], in any number of processes.
package sqlitestore
