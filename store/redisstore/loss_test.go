package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// refused checks that the store has noticed a loss, and refuses every step from then on.
func refused(t *testing.T, s *redisstore.Store, why string) {
	t.Helper()
	err := eventually(t, "the loss is noticed", func(ctx context.Context) error {
		_, err := s.Create(ctx, newWrite("after the loss"))
		return err
	})
	if !errors.Is(err, redisstore.ErrDataLost) || !strings.Contains(err.Error(), why) {
		t.Errorf("Create after the loss: got %v, want ErrDataLost because of %q", err, why)
	}
	_, loaded := s.Load(t.Context(), refOf(0))
	_, swapped := s.Swap(t.Context(), newWrite("swapped"))
	_, listed := s.List(t.Context(), retrysafe.Query{})
	_, purged := s.Purge(t.Context(), 1)
	for what, err := range map[string]error{"Load": loaded, "Swap": swapped, "List": listed, "Purge": purged} {
		if !errors.Is(err, redisstore.ErrDataLost) {
			t.Errorf("%s after the loss: got %v, want ErrDataLost", what, err)
		}
	}
}

func TestW36_EvictingServerIsRefused(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedisWith(t, map[string]string{"maxmemory-policy": "allkeys-lru"})
	_, err := redisstore.Open(t.Context(), "redis://"+server.Addr(), nil)
	if err == nil || !strings.Contains(err.Error(), "maxmemory-policy allkeys-lru") || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("Open of a server that evicts: %v", err)
	}
	// Records have no time to live, so these policies do not touch them.
	_, err = server.Do(t.Context(), "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	must(t, err)
	s := open(t, "redis://"+server.Addr(), nil)
	_, err = s.Create(t.Context(), newWrite("key"))
	must(t, err)
}

// The control: a server that is told to evict while the store is open grants a key twice,
// as a bare look at the server shows. The store notices and refuses.
func TestW36_ServerThatBeginsToEvict(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	w := newWrite("key")
	_, err := s.Create(t.Context(), w)
	must(t, err)
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
	defer c.Close()
	for _, args := range [][]any{{"CONFIG", "SET", "maxmemory-policy", "allkeys-random"}, {"CONFIG", "SET", "maxmemory", "3mb"}} {
		must(t, c.Do(t.Context(), args...).Err())
	}
	within(t, "the reservation is evicted", func() bool {
		pipe := c.Pipeline()
		for range 200 {
			pipe.Set(t.Context(), "other:"+newWrite("").Owner.String(), strings.Repeat("x", 1000), 0)
		}
		_, _ = pipe.Exec(t.Context())
		return c.Exists(t.Context(), s.Key(w.Ref)).Val() == 0
	})
	err = eventually(t, "the eviction is noticed", func(ctx context.Context) error {
		_, err := s.Load(ctx, w.Ref)
		if errors.Is(err, retrysafe.ErrNotFound) {
			err = errors.New("the record is gone, and the policy was not looked at yet")
		}
		return err
	})
	if !errors.Is(err, redisstore.ErrDataLost) {
		t.Errorf("a server that evicts: got %v, want ErrDataLost", err)
	}
}

// A server that is told to evict keys while the store is open is refused before it has evicted
// any.
func TestW36_PolicyThatChangesIsNoticed(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	_, err := s.Create(t.Context(), newWrite("key"))
	must(t, err)
	_, err = server.Do(t.Context(), "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	must(t, err)
	within(t, "the policy is looked at", func() bool {
		_, err := s.Load(t.Context(), newWrite("key").Ref)
		return err != nil
	})
	refused(t, s, "maxmemory-policy is allkeys-lru")
}

func TestW36_FlushedServerIsRefused(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	_, err := s.Create(t.Context(), newWrite("key"))
	must(t, err)
	_, err = server.Do(t.Context(), "FLUSHALL")
	must(t, err)
	refused(t, s, "not what it was")
	if _, err := redisstore.Open(t.Context(), "redis://"+server.Addr(), &redisstore.Options{MustExist: true}); !errors.Is(err, redisstore.ErrDataLost) {
		t.Errorf("Open with MustExist of a server that was flushed: %v", err)
	}
	// A program that accepts the loss begins anew, and stores from before stay refused.
	fresh := open(t, "redis://"+server.Addr(), nil)
	_, err = fresh.Create(t.Context(), newWrite("key"))
	must(t, err)
	refused(t, s, "not what it was")
}

// A server whose data is replaced by an older copy while it runs keeps its name and its
// connections: only the number of writes tells.
func TestW36_OlderDataInTheSameServerIsRefused(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	must2 := func(_ any, err error) { t.Helper(); must(t, err) }
	must2(s.Create(t.Context(), newWrite("before")))
	marks := make(map[string]string)
	for _, key := range s.MarkKeys() {
		mark, err := s.Client(refOf(0)).Get(t.Context(), key).Result()
		must(t, err)
		marks[key] = mark
	}
	must2(s.Create(t.Context(), newWrite("after the loss"))) // the key that refused asks for
	for key, mark := range marks {
		must(t, s.Client(refOf(0)).Set(t.Context(), key, mark, 0).Err())
	}
	refused(t, s, "not what it was")
}

// Another store that begins anew hides nothing from one that has seen the old data.
func TestW36_NewEpochIsRefused(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	_, err := server.Do(t.Context(), "FLUSHALL")
	must(t, err)
	open(t, "redis://"+server.Addr(), nil)
	refused(t, s, "not what it was")
}

func TestW36_RestartWithoutADiskIsRefused(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedisWith(t, map[string]string{"appendonly": "no"})
	s := open(t, "redis://"+server.Addr(), &redisstore.Options{AcceptFailover: true})
	_, err := s.Create(t.Context(), newWrite("key"))
	must(t, err)
	must(t, server.Restart(t.Context()))
	refused(t, s, "lost the data")
}

// A server that comes back with an older snapshot has the records of before. The writes
// since then are missed, whether failovers are accepted or not.
func TestW36_OlderSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	for _, accept := range []bool{false, true} {
		server := testservers.NewRedisWith(t, map[string]string{"appendonly": "no"})
		s := open(t, "redis://"+server.Addr(), &redisstore.Options{AcceptFailover: accept})
		w := newWrite("key")
		rec, err := s.Create(t.Context(), w)
		must(t, err)
		_, err = server.Do(t.Context(), "SAVE")
		must(t, err)
		_, err = s.Swap(t.Context(), complete(rec, "paid"))
		must(t, err)
		must(t, server.Restart(t.Context()))
		refused(t, s, "were acknowledged")
	}
}

// A server without an append-only file that comes back whole may lack what other
// processes have written.
func TestW36_RestartFromASnapshotIsRefusedUnlessAccepted(t *testing.T) {
	t.Parallel()
	for _, accept := range []bool{false, true} {
		server := testservers.NewRedisWith(t, map[string]string{"appendonly": "no"})
		s := open(t, "redis://"+server.Addr(), &redisstore.Options{AcceptFailover: accept})
		w := newWrite("key")
		_, err := s.Create(t.Context(), w)
		must(t, err)
		_, err = server.Do(t.Context(), "SAVE")
		must(t, err)
		must(t, server.Restart(t.Context()))
		if !accept {
			refused(t, s, "AcceptFailover")
			continue
		}
		err = eventually(t, "the server is back", func(ctx context.Context) error {
			_, err := s.Load(ctx, w.Ref)
			return err
		})
		must(t, err)
	}
}

func TestRestartWithAnAppendOnlyFileGoesOn(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	w := newWrite("key")
	rec, err := s.Create(t.Context(), w)
	must(t, err)
	must(t, server.Restart(t.Context()))
	err = eventually(t, "the server is back", func(ctx context.Context) error {
		_, err := s.Swap(ctx, complete(rec, "paid"))
		return err
	})
	must(t, err)
}

func TestPartOfTheDataIsRefused(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	c := s.Client(refOf(0))
	must(t, c.Del(t.Context(), "{"+opts.Prefix+":03}:mark").Err())
	if _, err := redisstore.Open(t.Context(), url, opts); !errors.Is(err, redisstore.ErrDataLost) || !strings.Contains(err.Error(), "another prefix") {
		t.Errorf("Open of data that lacks a part: %v", err)
	}
	must(t, c.Del(t.Context(), "{"+opts.Prefix+":00}:root").Err())
	if _, err := redisstore.Open(t.Context(), url, opts); !errors.Is(err, redisstore.ErrDataLost) {
		t.Errorf("Open of data without its root: %v", err)
	}
}

func TestReplicaIsRefused(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(testservers.SharedRedis(t), ""), ":")
	_, err := server.Do(t.Context(), "REPLICAOF", "127.0.0.1", port)
	must(t, err)
	if _, err := redisstore.Open(t.Context(), "redis://"+server.Addr(), nil); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("Open of a replica: %v", err)
	}
}

// A running server gets another replication id when its first replica connects. Nothing is
// lost by that, and stores of several processes go on, those with connections from before
// and those that come later.
func TestReplicaThatConnectsIsNoLoss(t *testing.T) {
	t.Parallel()
	server, replica := testservers.NewRedis(t), testservers.NewRedis(t)
	url := "redis://" + server.Addr()
	stores := []*redisstore.Store{open(t, url, nil), open(t, url, nil)}
	idle := open(t, url, nil)
	_, err := idle.Create(t.Context(), newWrite("before"))
	must(t, err)
	var steps atomic.Int64
	work := func(s *redisstore.Store, name string) {
		for n := range 300 {
			got, err := s.Create(t.Context(), newWrite(fmt.Sprint(name, n)))
			if err == nil {
				_, err = s.Swap(t.Context(), complete(got, "paid"))
			}
			if err != nil {
				t.Errorf("%s, step %d: %v", name, n, err)
				return
			}
			steps.Add(1)
		}
	}
	var all sync.WaitGroup
	for i, s := range stores {
		for k := range 4 {
			all.Go(func() { work(s, fmt.Sprintf("store %d, client %d, ", i, k)) })
		}
	}
	within(t, "the stores work", func() bool { return steps.Load() > 100 || t.Failed() })
	_, port, _ := strings.Cut(server.Addr(), ":")
	_, err = replica.Do(t.Context(), "REPLICAOF", "127.0.0.1", port)
	must(t, err)
	within(t, "the replica follows", func() bool {
		info, err := replica.Do(t.Context(), "INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	all.Go(func() { work(open(t, url, nil), "a later store, ") })
	all.Wait()
	_, err = idle.Create(t.Context(), newWrite("afterwards")) // on its connection from before, when all buckets are the new name's
	must(t, err)
}

func TestFullServerStoresNothing(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	_, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1mb")
	must(t, err)
	w := newWrite("key")
	if _, err := s.Create(t.Context(), w); !errors.Is(err, retrysafe.ErrFull) {
		t.Errorf("Create in a server without room: got %v, want ErrFull", err)
	}
	if _, err := s.Load(t.Context(), w.Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Load after that: got %v, want ErrNotFound", err)
	}
}

// A server that has lost its scripts is sent them again.
func TestServerThatForgotItsScripts(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	for range 3 {
		_, err := server.Do(t.Context(), "SCRIPT", "FLUSH")
		must(t, err)
		rec, err := s.Create(t.Context(), newWrite(newWrite("").Owner.String()))
		must(t, err)
		_, err = s.Swap(t.Context(), complete(rec, "paid"))
		must(t, err)
	}
}

func TestDurabilityNamesWhatCanBeLost(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	s := open(t, "redis://"+server.Addr(), nil)
	d, err := s.Durability(t.Context())
	must(t, err)
	if d.Class != "D" || !d.AppendOnly || d.Fsync != "always" || len(d.Caveats) != 0 {
		t.Errorf("appendfsync always: %v", d)
	}
	for setting, want := range map[string]string{"appendfsync everysec": "appendfsync is everysec", "appendonly no": "no append-only file"} {
		name, value, _ := strings.Cut(setting, " ")
		_, err := server.Do(t.Context(), "CONFIG", "SET", name, value)
		must(t, err)
		d, err := s.Durability(t.Context())
		must(t, err)
		if !strings.Contains(d.String(), want) {
			t.Errorf("%s: %v", setting, d)
		}
		_, err = server.Do(t.Context(), "CONFIG", "SET", "appendonly", "yes")
		must(t, err)
	}
}

// Every part of a record is covered by a checksum.
func TestDamageOfAnyPartIsNoticed(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	for _, part := range []string{"m", "o", "h", "c", "t", "s", "e"} {
		w := newWrite("damaged " + part)
		w.Checkpoint = retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")}
		rec, err := s.Create(t.Context(), w)
		must(t, err)
		must(t, damage(t, s, w.Ref, part))
		if _, err := s.Load(t.Context(), w.Ref); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("Load with a damaged %s: got %v", part, err)
		}
		if part == "t" || part == "s" {
			continue // a swap replaces it
		}
		if _, err := s.Swap(t.Context(), rec.Update()); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("Swap with a damaged %s: got %v", part, err)
		}
	}
}

// A key of the store that holds something else than a string is no record, and is neither
// replaced nor taken for a free one. Steps that came together with it go on.
func TestKeyOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	w := newWrite("key")
	must(t, s.Client(w.Ref).LPush(t.Context(), s.Key(w.Ref), "something else").Err())
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			if _, err := s.Create(t.Context(), newWrite(fmt.Sprint("beside ", n))); err != nil {
				t.Errorf("Create beside it: %v", err)
			}
			if _, err := s.Create(t.Context(), newWrite("key")); !errors.Is(err, retrysafe.ErrUnreadable) {
				t.Errorf("Create: got %v, want ErrUnreadable", err)
			}
			if _, err := s.Load(t.Context(), w.Ref); !errors.Is(err, retrysafe.ErrUnreadable) {
				t.Errorf("Load: got %v, want ErrUnreadable", err)
			}
			if _, err := s.Swap(t.Context(), complete(w.Record, "paid")); !errors.Is(err, retrysafe.ErrUnreadable) {
				t.Errorf("Swap: got %v, want ErrUnreadable", err)
			}
		})
	}
	all.Wait()
	if n, err := s.Client(w.Ref).LLen(t.Context(), s.Key(w.Ref)).Result(); n != 1 || err != nil {
		t.Errorf("the other value has %d entries, %v", n, err)
	}
}

// Data whose root a program does not know is refused.
func TestUnknownRootIsRefused(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	c := open(t, url, opts).Client(refOf(0))
	for _, root := range []string{"ready 0123456789abcdef", "ready 3 0123456789abcdef", "ready 8 short", "else 8 0123456789abcdef"} {
		must(t, c.Set(t.Context(), "{"+opts.Prefix+":00}:root", root, 0).Err())
		if _, err := redisstore.Open(t.Context(), url, opts); err == nil || !strings.Contains(err.Error(), "another Prefix") {
			t.Errorf("Open of data with the root %q: %v", root, err)
		}
	}
}

// Steps of all kinds on the same keys and on others that share scripts get their own replies,
// and of those that reserve one key at the same time one gets it.
func TestStepsThatComeTogether(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	const keys, clients = 40, 6
	var won [keys]atomic.Int64
	var all sync.WaitGroup
	for c := range clients {
		for n := range keys {
			all.Go(func() {
				w := newWrite(fmt.Sprint("together ", n))
				got, err := s.Create(t.Context(), w)
				switch {
				case err == nil:
					won[n].Add(1)
					_, err = s.Swap(t.Context(), complete(got, fmt.Sprint("answer ", n)))
					must(t, err)
				case !errors.Is(err, retrysafe.ErrExists):
					t.Errorf("client %d: Create: %v", c, err)
				}
				loaded, err := s.Load(t.Context(), w.Ref)
				if err != nil || loaded.Key != w.Key || got.Key != w.Key {
					t.Errorf("client %d: asked for %q, created %q, loaded %q: %v", c, w.Key, got.Key, loaded.Key, err)
				}
			})
		}
	}
	all.Wait()
	for n := range keys {
		r, err := s.Load(t.Context(), newWrite(fmt.Sprint("together ", n)).Ref)
		if err != nil || won[n].Load() != 1 || r.State != retrysafe.StateCompleted || string(r.Result.Body) != fmt.Sprint("answer ", n) {
			t.Errorf("key %d: %d reservations, state %v, %v", n, won[n].Load(), r.State, err)
		}
	}
}

// A swap whose caller has not read what belongs to the attempt keeps it, and returns it.
func TestSwapKeepsWhatItsCallerHasNotRead(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	w := newWrite("key")
	w.Request, w.Checkpoint = []byte("the request"), retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")}
	rec, err := s.Create(t.Context(), w)
	must(t, err)
	blind := retrysafe.Write{Expect: rec.Fence(), Record: retrysafe.Record{
		Ref: rec.Ref, State: retrysafe.StateUnknown, Lapse: rec.Lapse, Effects: rec.Effects, Version: rec.Version, Reason: "lost",
	}, Term: w.Term}
	got, err := s.Swap(t.Context(), blind)
	must(t, err)
	loaded, err := s.Load(t.Context(), rec.Ref)
	must(t, err)
	for what, r := range map[string]retrysafe.Record{"returned": got, "stored": loaded} {
		if string(r.Request) != "the request" || r.Checkpoint.Phase != "charged" || r.Owner != rec.Owner || r.Attempt != 1 || r.State != retrysafe.StateUnknown || r.Reason != "lost" {
			t.Errorf("%s: %+v", what, r)
		}
	}
}
