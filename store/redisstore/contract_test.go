package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/redisstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		url, opts := shared(t)
		return harness(t, url, opts)
	})
}

// harness returns a store with a second handle on the same data.
func harness(t *testing.T, url string, opts *redisstore.Options) storetest.Harness {
	t.Helper()
	s := open(t, url, opts)
	return storetest.Harness{
		Store: s, Peers: []retrysafe.Store{open(t, url, opts)},
		Damage:  func(ref retrysafe.Ref) error { return damage(t, s, ref, "h") },
		SetBack: func(d time.Duration) { must(t, s.SetBack(t.Context(), d)) },
	}
}

// damage flips a bit of a part of a record: m is its meta, h its head, c its checkpoint, t
// its tail.
func damage(t *testing.T, s *redisstore.Store, ref retrysafe.Ref, part string) error {
	t.Helper()
	c, key := s.Client(ref), s.Key(ref)
	b, err := c.Get(t.Context(), key).Bytes()
	if err != nil {
		return err
	}
	at, err := redisstore.PartOf(string(b), part)
	if err != nil {
		return err
	}
	b[at] ^= 1
	return c.Set(t.Context(), key, b, 0).Err()
}

// With a server that is killed and comes back. Only the rules about crashes are held here.
func TestContractAfterACrash(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		if !strings.Contains(t.Name(), "crash") {
			t.Skip("TestContract holds it")
		}
		server := testservers.NewRedis(t)
		url := "redis://" + server.Addr()
		return storetest.Harness{Store: open(t, url, nil), Reopen: func() retrysafe.Store {
			must(t, server.Restart(t.Context()))
			return open(t, url, &redisstore.Options{MustExist: true})
		}}
	})
}

func recoveryPlace(t *testing.T) recoverytest.Place {
	t.Helper()
	url, opts := shared(t)
	return recoverytest.Place{Store: open(t, url, opts), Peers: []retrysafe.Store{open(t, url, opts)}}
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, recoveryPlace(t))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, recoveryPlace(t))
}
