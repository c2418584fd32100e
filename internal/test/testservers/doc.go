// Package testservers runs real servers as child processes, for tests,
// benchmarks and the command that proves a store: PostgreSQL with standbys and
// pg_cron, PgBouncer in front of it, MariaDB, Redis, RabbitMQ, and dynalite, which speaks
// DynamoDB's protocol. They can be killed, paused, restarted and promoted.
//
// Every server has a directory and a port of its own, also while it is down, never
// runs as root, and never outlives this process, however it ends. A missing program is an error
// that names the Debian package, never a reason to skip a test.
//
// In tests:
//
//	func TestMain(m *testing.M) { testservers.Main(m) }
//
//	url := testservers.Shared(t)          // a fresh database: tens of milliseconds
//	pg := testservers.NewPostgres(t, nil) // a server to kill: tenths of a second
//
// Servers live below TMPDIR, which should be on the disk that benchmarks are about,
// or in memory below /dev/shm, which is several times faster.
//
// While a server lives, one goroutine, runChild, waits for it. A leak check that
// runs before Main has ended must ignore it.
//
// The package works on Linux only: it relies on /proc and on the signal that a
// child gets when its parent dies.
package testservers
