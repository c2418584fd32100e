package move_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
)

// livePolicy lets what was in flight at the cut lapse soon, and never runs it again.
var livePolicy = retrysafe.Policy{Lease: time.Second, MaxRun: 3 * time.Second, Reconcile: time.Hour}

// A ledger is a file with one line for each effect, by whatever process.
type ledger struct{ file *os.File }

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	return &ledger{f}, err
}

func (l *ledger) add(key string) { _, _ = l.file.WriteString(key + "\n") }

func (l *ledger) count(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(l.file.Name())
	must(t, err)
	n := map[string]int{}
	for line := range strings.Lines(string(text)) {
		n[strings.TrimSpace(line)]++
	}
	return n
}

// clients are what has been asked for, and what was shown of it.
type clients struct {
	mu    sync.Mutex
	asked map[string]string // the answer, if there was one
}

func (c *clients) note(key, answer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = map[string]string{}
	}
	c.asked[key] = answer
}

// hear reads what a child process says until it is killed.
func (c *clients) hear(lines *bufio.Scanner) {
	for lines.Scan() {
		if key, ok := strings.CutPrefix(lines.Text(), "failed "); ok {
			c.note(key, "")
		} else if said, ok := strings.CutPrefix(lines.Text(), "shown "); ok {
			key, answer, _ := strings.Cut(said, ": ")
			c.note(key, answer)
		}
	}
}

// Servers in this process and in another run all the time while their keys move; the
// other one is killed. Then all clients turn to the destination and ask again. No key
// has two effects, every answer that was shown is shown again, and a request that still
// goes to the source runs nothing.
func TestMovesWhileServersRun(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		a, b := newSource(t), newDestination(t)
		from := served(t, a)
		stock, servers, pause := 2000, 8, time.Duration(0)
		if strings.HasPrefix(string(a), "dynamodb:") || strings.HasPrefix(string(b), "dynamodb:") { // it takes fewer keys than Redis gets
			stock, servers, pause = 500, 4, 10*time.Millisecond
		}
		for n := range stock {
			_, err := from.Create(t.Context(), answered(fmt.Sprint("stock ", n)))
			must(t, err)
		}
		effects, err := openLedger(filepath.Join(t.TempDir(), "effects"))
		must(t, err)
		defer effects.file.Close()
		var seen clients
		stop := make(chan struct{})
		var load sync.WaitGroup
		old := engine(t, from, livePolicy)
		for w := range servers {
			e := old
			if w%2 == 0 {
				e = engine(t, served(t, a), livePolicy)
			}
			load.Go(func() { serve(t, e, fmt.Sprint("server ", w), pause, effects, &seen, stop) })
		}
		other := child(t, "payer", envFrom+"="+string(a), envEffects+"="+effects.file.Name(), envPause+"="+pause.String())
		out, err := other.StdoutPipe()
		must(t, err)
		must(t, other.Start())
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatal("the other process does nothing")
		}
		load.Go(func() { seen.hear(lines) })

		to := opened(t, b)
		kill, killed := rand.IntN(stock), false
		report, err := move.Records(t.Context(), opened(t, a), to, &move.Options{Batch: 100, To: "elsewhere", Progress: func(p move.Progress) {
			if p.Stage == move.Catching && p.Again == 0 {
				_, err := pay(t.Context(), old, "meanwhile", func() { effects.add("meanwhile") })
				must(t, err)
			}
			if !killed && p.Records > kill {
				killed = true
				_ = other.Process.Kill()
			}
		}})
		must(t, err)
		t.Logf("%+v", report)
		if report.Again == 0 {
			t.Error("nothing was written while it moved; this test shows nothing")
		}
		_ = other.Process.Kill()
		for _, e := range []*retrysafe.Engine{old, engine(t, from, livePolicy)} { // the first one may give the store a rest
			_, err = pay(t.Context(), e, "too late", func() { t.Error("a key ran at the source after the cut") })
			if !errors.Is(err, retrysafe.ErrUnavailable) || e != old && !strings.Contains(err.Error(), "moved to elsewhere") {
				t.Errorf("the source said %v", err)
			}
		}
		close(stop)
		load.Wait()
		_ = other.Wait()
		retry(t, engine(t, to, livePolicy), effects, &seen)
	})
}

// serve pays under one key after the other, with a pause behind each.
func serve(t *testing.T, e *retrysafe.Engine, name string, pause time.Duration, effects *ledger, seen *clients, stop chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		key := fmt.Sprint(name, " ", n)
		out, err := pay(t.Context(), e, key, func() { effects.add(key) })
		if err == nil {
			seen.note(key, string(out.Body))
			time.Sleep(pause)
			continue
		}
		seen.note(key, "")
		time.Sleep(10 * time.Millisecond)
	}
}

// retry sends every request once more, until none is in flight, and counts.
func retry(t *testing.T, e *retrysafe.Engine, effects *ledger, seen *clients) {
	t.Helper()
	var unknown, fresh, replayed atomic.Int64
	var all sync.WaitGroup
	turns := make(chan struct{}, 16)
	for key, shown := range seen.asked {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			out, err := settled(t.Context(), e, key, effects)
			switch {
			case err == nil && shown != "" && string(out.Body) != shown:
				t.Errorf("%s: a client was shown %q, and is now %q", key, shown, out.Body)
			case err == nil && out.Replayed:
				replayed.Add(1)
			case err == nil:
				fresh.Add(1)
			case errors.Is(err, retrysafe.ErrUnknown) && shown == "":
				unknown.Add(1)
			default:
				t.Errorf("%s, of which a client was shown %q: %v", key, shown, err)
			}
		})
	}
	all.Wait()
	for key, n := range effects.count(t) {
		if n != 1 {
			t.Errorf("%s has %d effects", key, n)
		}
	}
	t.Logf("%d replayed, %d run for the first time, %d unknown", replayed.Load(), fresh.Load(), unknown.Load())
}

func settled(ctx context.Context, e *retrysafe.Engine, key string, effects *ledger) (retrysafe.Outcome, error) {
	for {
		out, err := pay(ctx, e, key, func() { effects.add(key) })
		if !errors.Is(err, retrysafe.ErrInFlight) {
			return out, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
