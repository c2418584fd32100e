package mysqlstore_test

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var clientCounts = []int{1, 8, 32, 256}

var benchBody = fmt.Appendf(nil, `{"id":"pay_%0180d"}`, 1)

// BenchmarkFresh reserves and completes fresh keys, beside a bare loop of one INSERT and
// one UPDATE for each key, in one run on one server.
func BenchmarkFresh(b *testing.B) {
	for _, binlog := range []bool{false, true} {
		settings, name := map[string]string{"max_connections": "600", "innodb_buffer_pool_size": "256M", "innodb_log_file_size": "256M"}, "off"
		if binlog {
			settings["log_bin"], settings["sync_binlog"], settings["server_id"], name = "binlog", "1", "1", "synced"
		}
		server := testservers.NewMariaDB(b, &testservers.MariaDBOptions{Settings: settings})
		count := 0
		for _, clients := range clientCounts {
			for _, impl := range []string{"bare", "ours"} {
				b.Run(fmt.Sprintf("binlog=%s/clients=%d/impl=%s", name, clients, impl), func(b *testing.B) {
					count++
					defer cpuPerKey(b, server)()
					dsn, err := server.CreateDatabase(b.Context(), fmt.Sprintf("fresh%d", count))
					must(b, err)
					if impl == "bare" {
						bare(b, dsn, clients)
						return
					}
					s := open(b, dsn, nil)
					byClients(b, clients, func(i int64) error {
						r, err := s.Create(b.Context(), benchRecord(i))
						if err == nil {
							_, err = s.Swap(b.Context(), completed(r))
						}
						return err
					})
					stats := s.BatchStats()
					b.ReportMetric(float64(stats.Requests)/float64(stats.Batches), "steps/batch")
				})
			}
		}
	}
}

// cpuPerKey reports the processor time that this process and the server have each used for
// a key: it depends less on what else the machine does than the rate.
func cpuPerKey(b *testing.B, server *testservers.MariaDB) func() {
	b.Helper()
	db := connect(b, server.DSN("test"))
	pid, err := os.ReadFile(one[string](b, db, `SELECT @@pid_file`))
	must(b, err)
	used := func() (client, ofServer time.Duration) {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		must(b, err)
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		ticks := 0
		for _, field := range fields[11:13] { // user and system, in hundredths of a second
			n, err := strconv.Atoi(field)
			must(b, err)
			ticks += n
		}
		var own syscall.Rusage
		must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
		return time.Duration(own.Utime.Nano() + own.Stime.Nano()), time.Duration(ticks) * 10 * time.Millisecond
	}
	client, ofServer := used()
	return func() {
		clientNow, ofServerNow := used()
		b.ReportMetric(float64((clientNow-client).Microseconds())/float64(b.N), "client-µs/key")
		b.ReportMetric(float64((ofServerNow-ofServer).Microseconds())/float64(b.N), "server-µs/key")
	}
}

// bare is what an application does by itself: a row for the key, and then its answer.
func bare(b *testing.B, dsn string, clients int) {
	b.Helper()
	db, err := sql.Open("mysql", dsn+"?interpolateParams=true")
	must(b, err)
	defer db.Close()
	db.SetMaxOpenConns(clients)
	db.SetMaxIdleConns(clients)
	exec(b, db, `CREATE TABLE bare (id BINARY(32) NOT NULL PRIMARY KEY, fingerprint BINARY(32) NOT NULL, state TINYINT NOT NULL, until BIGINT NOT NULL, answer BLOB)`)
	byClients(b, clients, func(i int64) error {
		w := benchRecord(i)
		key := sha256.Sum256([]byte(w.Key))
		if _, err := db.ExecContext(b.Context(), `INSERT INTO bare VALUES (?, ?, 2, ?, NULL)`, key[:], w.Fingerprint.Sum[:], time.Now().Add(w.Term).UnixMicro()); err != nil {
			return err
		}
		_, err := db.ExecContext(b.Context(), `UPDATE bare SET state = 3, until = ?, answer = ? WHERE id = ? AND state = 2`, time.Now().Add(w.Retain).UnixMicro(), benchBody, key[:])
		return err
	})
}

// BenchmarkReplay asks for the answers of completed keys.
func BenchmarkReplay(b *testing.B) {
	const keys = 1000
	s := open(b, testservers.SharedMariaDB(b), nil)
	for i := range int64(keys) {
		must(b, second(s.Create(b.Context(), completed(benchRecord(i).Record))))
	}
	for _, clients := range clientCounts {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			byClients(b, clients, func(i int64) error {
				r := benchRecord(i % keys)
				r.Owner[15] = 1                                                                            // another attempt
				if got, err := s.Create(b.Context(), r); err != retrysafe.ErrExists || got.Result == nil { //nolint:errorlint // as it is
					return fmt.Errorf("%v: %w", got.State, err)
				}
				return nil
			})
		})
	}
}

// benchRecord is the reservation of the i-th key.
func benchRecord(i int64) retrysafe.Write {
	return retrysafe.Write{Term: 30 * time.Second, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i)}, Operation: "POST /payments",
		Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress, Owner: retrysafe.Owner{byte(i), byte(i >> 8), byte(i >> 16), 1},
		Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{byte(i)}},
		Attempt:     1, Retain: 24 * time.Hour,
	}}
}

// completed is the write that gives r its answer: 200 bytes and two headers.
func completed(r retrysafe.Record) retrysafe.Write {
	w := r.Update()
	w.State, w.Term = retrysafe.StateCompleted, r.Retain
	w.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}}, Body: benchBody}
	return w
}

// byClients calls step with 1 to b.N from a number of clients, and reports the rate.
func byClients(b *testing.B, clients int, step func(i int64) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range clients {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := step(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}
