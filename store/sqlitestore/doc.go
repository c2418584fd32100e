// Package sqlitestore keeps records in a SQLite database: one file, no server,
// durable. It is the embedded default, for one machine; several processes may
// share the file.
//
// A step is durable when it returns: the database runs with a write-ahead log
// and synchronous=FULL. SQLite has one writer at a time; steps that come at the
// same time share one transaction and one flush. A replay takes no lock, and waits
// for no writer.
//
// [Store.Tx] joins a transaction of the caller's over the same database, so that
// effects and answer commit together. Begin such a transaction IMMEDIATE: one
// that reads before it writes may find that it cannot write any more.
//
// [Tx.Enqueue] adds messages to such a transaction, and workers of package outbox
// deliver them from [Store.Outbox], in as many processes as there are.
package sqlitestore
