package demo_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// One of two nodes is killed while both take transfers and the provider loses
// answers. The other goes on: each key has one effect and one answer.
func TestKillOneOfTwoNodes(t *testing.T) {
	t.Parallel()
	const clients, each = 6, 12
	p := start(t, "sqlite:"+filepath.Join(t.TempDir(), "payments.db"), 2)
	p.fault(`{"mode": "drop_after", "times": 10}`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	var answered atomic.Int64
	var kill sync.Once
	var all sync.WaitGroup
	answers := make([]answer, clients*each)
	for client := range clients {
		all.Go(func() {
			for i := range each {
				n := client*each + i
				answers[n] = ask(ctx, p.nodes, n)
				if answered.Add(1) >= clients*each/4 {
					kill.Do(func() { _ = syscall.Kill(p.pids[0], syscall.SIGKILL) })
				}
			}
		})
	}
	all.Wait()

	survivor := p.nodes[1]
	for n, first := range answers {
		if first.status != http.StatusCreated {
			t.Fatalf("key %d was never answered: %+v", n, first)
		}
		first.replayed = true // unless the worker was quick, and it was the very first that got it
		if got := p.do(http.MethodPost, survivor+"/transfers", a, keyOf(n), euro); got != first {
			t.Errorf("key %d: a retry got %+v, the first answer was %+v", n, got, first)
		}
		p.once(keyOf(n))
	}
	if _, err := try(ctx, http.MethodGet, p.nodes[0]+"/ledger?key=k", a, "", ""); err == nil {
		t.Error("the node that was killed answers")
	}
}

// A node is killed while its call to the provider is under way. The other finds out
// what became of it, and does not call again.
func TestKillInTheMiddleOfACharge(t *testing.T) {
	t.Parallel()
	const key = "charge-under-fire"
	file := filepath.Join(t.TempDir(), "payments.db")
	p := start(t, "sqlite:"+file, 2)
	p.fault(`{"mode": "slow", "delay": "1m", "times": 1}`)
	var asked sync.WaitGroup
	asked.Go(func() { _, _ = try(t.Context(), http.MethodPost, p.nodes[0]+"/charges", a, key, euro) })
	for end := time.Now().Add(patience); len(p.charged(key)) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the provider was never called")
		}
	}
	must(t, syscall.Kill(p.pids[0], syscall.SIGKILL))
	asked.Wait()
	p.nodes = p.nodes[1:]
	p.until("/charges", key, http.StatusCreated)
	p.once(key)
	must(t, p.stop())
	if !byTheLedger(t, file, key) {
		t.Error("it was not settled by the provider's ledger")
	}
}

func keyOf(n int) string { return fmt.Sprintf("transfer-under-fire-%d", n) }

// ask sends a transfer to one node or the other until it is answered for good.
func ask(ctx context.Context, nodes []string, n int) (got answer) {
	for i := n; ctx.Err() == nil; i++ {
		got, err := try(ctx, http.MethodPost, nodes[i%len(nodes)]+"/transfers", a, keyOf(n), euro)
		if err == nil && got.status == http.StatusCreated {
			return got
		}
		time.Sleep(10 * time.Millisecond)
	}
	return got
}
