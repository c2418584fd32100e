package pgstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// secondProcess tells this test that it runs in the other process.
const secondProcess = "RETRYSAFE_PGSTORE_SECOND_PROCESS"

// Two processes do the same operations under the same keys at the same time, one
// by DoTx and one by Do, with reservations that share batches. Each runs once, and
// every caller gets its answer.
func TestDoTxAndDoInTwoProcessesRunOnce(t *testing.T) {
	t.Parallel()
	const keys = 5000
	if url := os.Getenv(secondProcess); url != "" {
		b := newBank(t, url, txPolicy)
		fmt.Println("ready")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Println("begun")
		fmt.Println("ran", b.all(t, keys, func(ctx context.Context, key string) (retrysafe.Outcome, error) { return b.doTx(ctx, key, nil) }))
		return
	}
	url := testservers.Shared(t)
	b := newBank(t, url, txPolicy)
	other := osexec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), secondProcess+"="+url)
	other.Stderr = t.Output()
	in, err := other.StdinPipe()
	must(t, err)
	out, err := other.StdoutPipe()
	must(t, err)
	must(t, other.Start())
	said := bufio.NewScanner(out)
	hear := func(word string) string {
		for said.Scan() {
			if rest, ok := strings.CutPrefix(said.Text(), word); ok {
				return strings.TrimSpace(rest)
			}
			t.Log(said.Text())
		}
		return ""
	}
	hear("ready")
	must(t, second(fmt.Fprintln(in)))
	hear("begun") // on a busy machine this process could have done everything before
	mine := b.all(t, keys, b.do)
	theirs, err := strconv.Atoi(hear("ran"))
	must(t, err)
	hear("PASS")
	if err := other.Wait(); err != nil {
		t.Fatalf("the other process: %v", err)
	}
	if mine+theirs != keys {
		t.Errorf("%d ran here and %d there, want %d in all", mine, theirs, keys)
	}
	if mine == 0 || theirs == 0 {
		t.Error("one of the two did nothing; they have not met")
	}
	if n := one[int](t, b.conn, `SELECT count(*) FROM effects`); n != keys {
		t.Errorf("%d effects, want %d", n, keys)
	}
	if n := one[int](t, b.conn, `SELECT count(DISTINCT key) FROM effects`); n != keys {
		t.Errorf("%d keys have effects, want %d", n, keys)
	}
	t.Logf("%d ran here, %d in the other process", mine, theirs)
}

// all does every key until it has its answer, in an order that is the same
// everywhere, so that all meet, and returns how many ran here.
func (b *bank) all(t *testing.T, keys int, do func(context.Context, string) (retrysafe.Outcome, error)) int {
	t.Helper()
	var next, ran atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(keys); i = next.Add(1) {
				key := fmt.Sprint(i)
				for {
					out, err := do(t.Context(), key)
					if err == nil {
						if string(out.Body) != "booked "+key {
							t.Errorf("%s got %q", key, out.Body)
						}
						if !out.Replayed {
							ran.Add(1)
						}
						break
					}
					if !errors.Is(err, retrysafe.ErrInFlight) {
						t.Errorf("%s: %v", key, err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return int(ran.Load())
}
