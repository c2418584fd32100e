package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/movetest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/redisstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// One cluster serves all tests here that break nothing, and the tests that break it come
// after each other, because six servers are many.
func TestW35W37_Cluster(t *testing.T) {
	t.Parallel()
	c := testservers.NewRedisCluster(t, 3, 1)
	t.Run("contract", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Harness {
			for _, other := range []string{"ordinary_terms", "crash", "transaction", "message", "letter", "outbox", "worker", "uniform"} {
				if strings.Contains(t.Name(), other) {
					t.Skip("TestContract holds it on one server; here a rule opens six connections")
				}
			}
			_, opts := shared(t)
			return harness(t, c.URL(), opts)
		})
	})
	for name, test := range map[string]func(*testing.T, movetest.Harness){
		"follow": movetest.FollowNotesEveryWrite, "fill": movetest.FillIsOneRuns, "closed": movetest.MovingOpensWhatIsClosed,
	} {
		t.Run("move, "+name, func(t *testing.T) {
			_, opts := shared(t)
			test(t, moveHarnessAt(t, c.URL(), opts))
		})
	}
	t.Run("move, whole", func(t *testing.T) { moveOut(t, c) })
	t.Run("slots move", func(t *testing.T) { slotsMove(t, c) })
	t.Run("failover that loses writes", func(t *testing.T) { losingFailover(t, c) })
}

// moveOut follows a store with 256 buckets on three servers, and retires it: the log of all
// buckets is copied, and every bucket is closed.
func moveOut(t *testing.T, c *testservers.RedisCluster) {
	ctx, run := t.Context(), retrysafe.Owner{1}
	_, opts := shared(t)
	s, other := open(t, c.URL(), opts), open(t, c.URL(), opts)
	_, err := s.Mover().Follow(ctx, run)
	must(t, err)
	const keys = 300
	for n := range keys {
		_, err := other.Create(ctx, newWrite(fmt.Sprint(n)))
		must(t, err)
	}
	got := map[string]bool{}
	written, _, err := s.Mover().Written(ctx, run, 100)
	must(t, err)
	if len(written) != 100 {
		t.Errorf("Written has returned %d records of %d, want 100", len(written), keys)
	}
	rest := func(_ context.Context, written []retrysafe.Record, _ []retrysafe.Ref) error {
		for _, r := range written {
			got[r.Key] = true
		}
		return nil
	}
	must(t, rest(ctx, written, nil))
	must(t, s.Mover().Retire(ctx, run, "elsewhere", rest))
	if len(got) != keys {
		t.Errorf("%d keys were copied, want %d", len(got), keys)
	}
	for n := range keys {
		if _, err := other.Load(ctx, newWrite(fmt.Sprint(n)).Ref); !errors.Is(err, storemove.ErrMoved) {
			t.Fatalf("Load of key %d after the move = %v", n, err)
		}
	}
}

// owner returns the node of the cluster that has the slot of a record now.
func owner(t *testing.T, c *testservers.RedisCluster, slot int) *testservers.Redis {
	t.Helper()
	for _, n := range c.Nodes[:3] {
		list, err := n.Do(t.Context(), "CLUSTER", "NODES")
		must(t, err)
		for line := range strings.Lines(list) {
			f := strings.Fields(line)
			if !strings.Contains(f[2], "myself") || !strings.Contains(f[2], "master") {
				continue
			}
			for _, r := range f[8:] {
				var first, last int
				if got, _ := fmt.Sscanf(r, "%d-%d", &first, &last); got == 1 {
					last = first
				}
				if slot >= first && slot <= last {
					return n
				}
			}
		}
	}
	t.Fatalf("no primary has slot %d", slot)
	return nil
}

// slotsMove moves the slot of a record to another node while the store works on it. Steps
// follow it, or are refused without a sentinel; none is applied twice.
func slotsMove(t *testing.T, c *testservers.RedisCluster) {
	ctx := t.Context()
	_, opts := shared(t)
	s := open(t, c.URL(), opts)
	w := newWrite("moved")
	rec, err := s.Create(ctx, w)
	must(t, err)
	slot := redisstore.SlotOf(fmt.Sprintf("%s:%02x", opts.Prefix, redisstore.Bucket(w.Ref)))
	from := owner(t, c, slot)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	fromID, err := from.Do(ctx, "CLUSTER", "MYID")
	must(t, err)
	toID, err := to.Do(ctx, "CLUSTER", "MYID")
	must(t, err)
	number := fmt.Sprint(slot)
	_, err = to.Do(ctx, "CLUSTER", "SETSLOT", number, "IMPORTING", fromID)
	must(t, err)
	_, err = from.Do(ctx, "CLUSTER", "SETSLOT", number, "MIGRATING", toID)
	must(t, err)
	host, port, _ := strings.Cut(to.Addr(), ":")
	list, err := from.Do(ctx, "CLUSTER", "GETKEYSINSLOT", number, "1000")
	must(t, err)
	unsure := false
	for key := range strings.SplitSeq(list, "\n") {
		// A step on a record whose keys are in two places is refused and was not applied.
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		got, err := s.Swap(short, rec.Update())
		cancel()
		switch {
		case err == nil, unsure && errors.Is(err, retrysafe.ErrConflict): // the one before was applied
			rec, unsure = got, false
		case errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrConflict):
			t.Fatalf("Swap while the slot moves: %v", err)
		default:
			unsure = true // on a busy machine it may have been applied
		}
		_, err = from.Do(ctx, "MIGRATE", host, port, key, "0", "5000")
		must(t, err)
	}
	for _, n := range []*testservers.Redis{to, from} {
		_, err = n.Do(ctx, "CLUSTER", "SETSLOT", number, "NODE", toID)
		must(t, err)
	}
	var settled retrysafe.Record
	err = eventually(t, "the slot has moved", func(ctx context.Context) (err error) {
		current, err := s.Load(ctx, rec.Ref)
		if err == nil {
			settled, err = s.Swap(ctx, complete(current, "paid"))
		}
		return err
	})
	must(t, err)
	if again, err := s.Create(ctx, newWrite("moved")); !errors.Is(err, retrysafe.ErrExists) || again.Revision != settled.Revision {
		t.Errorf("Create after the slot has moved: %v, revision %d, want %d", err, again.Revision, settled.Revision)
	}
	if now := owner(t, c, slot); now != to {
		t.Errorf("the slot is at %s, want %s", now.Addr(), to.Addr())
	}
}

// losingFailover is the control: a primary acknowledges reservations that its replica does
// not have, and dies. A store that accepts failovers, and has not seen these reservations,
// grants the keys again: that is what class D means. One that has seen them refuses.
func losingFailover(t *testing.T, c *testservers.RedisCluster) {
	ctx := t.Context()
	_, opts := shared(t)
	accept := &redisstore.Options{Prefix: opts.Prefix, AcceptFailover: true}
	witness, strict, stranger := open(t, c.URL(), accept), open(t, c.URL(), opts), open(t, c.URL(), accept)

	primary, replica := c.Nodes[0], c.Nodes[3]
	must(t, replica.Pause())
	_, err := primary.Do(ctx, "CLIENT", "KILL", "TYPE", "replica")
	must(t, err)
	_, err = primary.Do(ctx, "CONFIG", "SET", "repl-timeout", "3600")
	must(t, err)
	var lost []retrysafe.Write
	for n := 0; len(lost) < 20; n++ {
		w := newWrite(fmt.Sprint("key ", n))
		slot := redisstore.SlotOf(fmt.Sprintf("%s:%02x", opts.Prefix, redisstore.Bucket(w.Ref)))
		if owner(t, c, slot) != primary {
			continue
		}
		_, err := witness.Create(ctx, w)
		must(t, err)
		lost = append(lost, w)
	}
	must(t, primary.Kill())
	must(t, replica.Continue())
	must(t, c.Promote(ctx, replica))

	again := 0
	for _, w := range lost {
		second := newWrite(w.Key)
		err := eventually(t, "the promoted replica answers", func(ctx context.Context) error {
			_, err := stranger.Create(ctx, second)
			return err
		})
		if err == nil {
			again++
		}
	}
	if again == 0 {
		t.Error("the control lost nothing: the failover shows nothing")
	}
	t.Logf("%d of %d acknowledged reservations were granted again after the failover, to a store that had not seen them", again, len(lost))
	for what, s := range map[string]*redisstore.Store{"the store that has seen the reservations": witness, "a store that accepts no failover": strict} {
		for _, w := range lost {
			err := eventually(t, what+" notices the failover", func(ctx context.Context) error {
				_, err := s.Create(ctx, newWrite(w.Key))
				return err
			})
			if !errors.Is(err, redisstore.ErrDataLost) {
				t.Fatalf("%s: Create of a key that was lost: got %v, want ErrDataLost", what, err)
			}
		}
	}
	must(t, primary.Restart(ctx))
}

// Through sentinels the store follows the primary, if it may.
func TestW35_Sentinel(t *testing.T) {
	t.Parallel()
	servers := testservers.NewRedisSentinel(t, 1)
	accepting := open(t, servers.URL(), &redisstore.Options{AcceptFailover: true, MinReplicas: 1})
	strict := open(t, servers.URL(), nil)
	d, err := accepting.Durability(t.Context())
	must(t, err)
	if d.Mode != "sentinel" || d.Replicas != 1 || d.MinReplicas != 1 {
		t.Errorf("Durability: %v", d)
	}
	var records []retrysafe.Record
	for n := range 50 {
		rec, err := accepting.Create(t.Context(), newWrite(fmt.Sprint("key ", n)))
		must(t, err)
		if n%2 == 0 {
			rec, err = accepting.Swap(t.Context(), complete(rec, "paid"))
			must(t, err)
		}
		records = append(records, rec)
	}
	must(t, servers.Servers[0].Kill())
	must(t, servers.Promote(t.Context(), servers.Servers[1]))
	// What a replica had confirmed is there.
	reader := open(t, servers.URL(), &redisstore.Options{MustExist: true})
	for _, rec := range records {
		got, err := reader.Load(t.Context(), rec.Ref)
		if err != nil || got.Revision != rec.Revision {
			t.Fatalf("Load of %s after the failover: %v, revision %d, want %d", rec.Key, err, got.Revision, rec.Revision)
		}
	}
	// No replica is left to confirm a step, so none is confirmed.
	w := newWrite("after the failover")
	within(t, "the accepting store follows", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_, err = accepting.Create(ctx, w)
		return err != nil && strings.Contains(err.Error(), "MinReplicas")
	})
	refused(t, strict, "promoted")
}

// Sentinels may ask for a password of their own.
func TestSentinelsThatAskForAPassword(t *testing.T) {
	t.Parallel()
	servers := testservers.NewRedisSentinel(t, 0)
	for _, n := range servers.Sentinels {
		for _, user := range [][]string{{"asker", "on", ">of&sentinels", "~*", "&*", "+@all"}, {"default", "resetpass", ">of another"}} {
			_, err := n.Do(t.Context(), append([]string{"ACL", "SETUSER"}, user...)...)
			must(t, err)
		}
	}
	for _, parameters := range []string{"", "?sentinel_username=asker&sentinel_password=wrong"} {
		_, err := redisstore.Open(t.Context(), servers.URL()+parameters, nil)
		if err == nil || !strings.Contains(err.Error(), "check sentinel_username and sentinel_password") {
			t.Errorf("Open with %q: %v", parameters, err)
		}
	}
	const known = "?sentinel_username=asker&sentinel_password=of%26sentinels"
	if _, err := redisstore.Open(t.Context(), servers.URL()+"s"+known, nil); err == nil || !strings.Contains(err.Error(), "the sentinels know no primary of the name") {
		t.Errorf("Open with another name: %v", err)
	}
	s := open(t, servers.URL()+known, nil)
	_, err := s.Create(t.Context(), newWrite("a key"))
	must(t, err)
}
