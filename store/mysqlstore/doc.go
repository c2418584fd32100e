// Package mysqlstore keeps records in MySQL 8 or MariaDB 10.11 and later, over
// database/sql. Any number of processes may share the database.
//
// A step is durable when it returns if the server flushes its log with each commit, which
// is the default; [Store.Durability] says what the server does. Steps that arrive at the
// same time share one transaction and one flush (group commit). A replay takes no lock.
//
// The server's clock is the store's. Keys are compared as bytes, whatever the database's
// collation. The store's transactions are READ COMMITTED, and a deadlock is tried again
// inside: the server has rolled it back.
//
// [Store.Tx] joins a transaction of the caller's over the same database, so that effects
// and answer commit together, and [Store.BeginTx] begins one for [retrysafe.DoTx]. Such
// transactions have to be READ COMMITTED too: at REPEATABLE READ, the server's default, a
// transaction locks the gaps between keys, and delays keys that it does not use.
//
// [Tx.Enqueue] adds messages to such a transaction. Workers of package outbox deliver
// them from [Store.Outbox], in any number of processes.
package mysqlstore
