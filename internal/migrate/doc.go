// Package migrate applies numbered SQL files to a database, and records which of them it has.
//
// A [Set] is the migrations of one group of tables. It reads how far a database is ([Set.Version], [Set.Status]),
// applies what is pending ([Set.Migrate], [Set.MigrateTx]) and prints everything as one script ([Set.Script]). Its SQL
// is that of PostgreSQL, SQLite or MySQL; how statements are sent is up to a [Database] of the caller's driver.
//
// Several processes may migrate at once. One of them applies the migrations, in one transaction under a lock. The others
// wait for the lock, look again, and find nothing to do.
//
// # Older programs
//
// A program that meets a migration which it does not know refuses the database, unless the migration says that older
// programs can work with it. It says so in a line of its own:
//
//	-- works from 2
//
// Programs that know version 2 may then work on the database: the migration only adds, older programs need not fill what
// it adds, and newer ones understand what older ones write. The number is kept beside the version, because the older
// program has no file to read it from.
package migrate
