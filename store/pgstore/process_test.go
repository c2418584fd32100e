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
		told := bufio.NewReader(os.Stdin)
		fmt.Println("ran", b.all(t, keys, func(ctx context.Context, key string) (retrysafe.Outcome, error) { return b.doTx(ctx, key, nil) }, func() {
			fmt.Println("here")
			_, _ = told.ReadString('\n')
		}))
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
	mine := b.all(t, keys, b.do, func() {
		hear("here")
		_, _ = fmt.Fprintln(in)
	})
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
// everywhere, and returns how many ran here. Now and then it calls meet, which waits until
// the others are at the same key: on a busy machine one of them could have done all before.
func (b *bank) all(t *testing.T, keys int, do func(context.Context, string) (retrysafe.Outcome, error), meet func()) int {
	t.Helper()
	var next, ran atomic.Int64
	var gate sync.RWMutex
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(keys); i = next.Add(1) {
				if i%500 == 1 {
					gate.Lock()
					meet()
					gate.Unlock()
				} else {
					gate.RLock()
					gate.RUnlock() //nolint:staticcheck // it has waited
				}
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
