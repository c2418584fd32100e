package redistier_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/redistier"
)

// told is a store below whose changes the test tells, or fails to tell.
type told struct {
	*memstore.Store
	changed []retrysafe.Ref
	err     error
}

func (b *told) Changes(context.Context, string) ([]retrysafe.Ref, string, error) {
	return b.changed, "next", b.err
}

// changes lets a tier read the changes behind a cursor.
func changes(t testing.TB, s *redistier.Store, cursor string) {
	t.Helper()
	_, _, err := s.Changes(t.Context(), cursor)
	must(t, err)
}

// kept stores an answer below, and in Redis by a tier that uses it from there.
func kept(t testing.TB, s *redistier.Store, below retrysafe.Store) retrysafe.Record {
	t.Helper()
	rec := answered(t, below, "key")
	used(t, s, rec)
	return rec
}

// used waits until a record is used from Redis. Another revision must never be loaded. It reads
// the changes on, if there are any.
func used(t testing.TB, s *redistier.Store, rec retrysafe.Record) {
	t.Helper()
	before, _ := s.Hits()
	within(t, "the answer is used from Redis", func() bool {
		got, err := s.Load(t.Context(), rec.Ref)
		must(t, err)
		if got.Revision != rec.Revision {
			t.Fatalf("Load: revision %d, want %d", got.Revision, rec.Revision)
		}
		hits, _ := s.Hits()
		if _, _, err := s.Changes(t.Context(), "next"); !errors.Is(err, errors.ErrUnsupported) {
			must(t, err)
		}
		return hits > before
	})
}

// erase replaces an answer in the store below, as an operator does.
func erase(t testing.TB, below retrysafe.Store, rec retrysafe.Record) retrysafe.Record {
	t.Helper()
	w := rec.Update()
	w.Result, w.Announce, w.Term = &retrysafe.Result{Status: 410}, true, time.Hour
	changed, err := below.Swap(t.Context(), w)
	must(t, err)
	return changed
}

// ownServer opens a tier on a server of its own, which a test may change.
func ownServer(t *testing.T, below retrysafe.Store) (*testservers.Redis, *redistier.Store) {
	t.Helper()
	server := testservers.NewRedis(t)
	return server, openAt(t, server.Addr(), below, options())
}

func command(t *testing.T, server *testservers.Redis, args ...string) {
	t.Helper()
	_, err := server.Do(t.Context(), args...)
	must(t, err)
}

// A process that reads the changes on and on goes on using what it has stored meanwhile.
func TestAnswersStayWhileChangesAreRead(t *testing.T) {
	t.Parallel()
	below := &told{Store: newBelow()}
	s := open(t, below, options())
	changes(t, s, "")
	kept(t, s, below)
}

// A process that begins to follow again may have missed changes.
func TestFeedThatBeginsAgainTrustsNothingFromBefore(t *testing.T) {
	t.Parallel()
	below := &told{Store: newBelow()}
	s := open(t, below, options())
	changes(t, s, "")
	rec := kept(t, s, below)
	changed := erase(t, below, rec)
	changes(t, s, "")
	used(t, s, changed)
}

// A feed that fails for a while makes nothing trusted that was not before.
func TestFeedThatFailsMakesNothingTrusted(t *testing.T) {
	t.Parallel()
	below, opts := &told{Store: newBelow()}, options()
	rec := kept(t, open(t, below, opts), below)
	changed := erase(t, below, rec)
	s := open(t, below, opts)
	changes(t, s, "")
	below.err = errors.New("the store below is away")
	if _, _, err := s.Changes(t.Context(), "next"); !errors.Is(err, below.err) {
		t.Errorf("Changes = %v, want the error of the store below", err)
	}
	below.err = nil
	used(t, s, changed)
}

// Over a store that has no feed, or says that it has none, Redis is used all the same, for as
// long as MaxAge.
func TestStoreWithoutAFeed(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]retrysafe.Store{
		"has none": withoutFeed(newBelow()), "says so": &told{Store: newBelow(), err: errors.ErrUnsupported},
	} {
		s := open(t, below, options())
		if _, _, err := s.Changes(t.Context(), ""); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: Changes = %v, want ErrUnsupported", name, err)
		}
		kept(t, s, below)
	}
}

// Redis cannot be told of a change, because it is full. It is used again, without what it has
// of the time before.
func TestChangeThatRedisCouldNotBeToldOf(t *testing.T) {
	t.Parallel()
	below := &told{Store: newBelow()}
	server, s := ownServer(t, below)
	changes(t, s, "")
	rec := kept(t, s, below)
	changed := erase(t, below, rec)
	command(t, server, "CONFIG", "SET", "maxmemory", "1")
	below.changed = []retrysafe.Ref{rec.Ref}
	changes(t, s, "next")
	below.changed = nil
	command(t, server, "CONFIG", "SET", "maxmemory", "0")
	used(t, s, changed)
}

// A process that begins to follow while Redis does not tell its time trusts nothing that Redis
// has by then.
func TestFeedThatBeginsWithoutTheTimeOfRedis(t *testing.T) {
	t.Parallel()
	below := &told{Store: newBelow()}
	server, s := ownServer(t, below)
	rec := kept(t, s, below)
	changed := erase(t, below, rec)
	command(t, server, "ACL", "SETUSER", "default", "-time")
	changes(t, s, "")
	command(t, server, "ACL", "SETUSER", "default", "+time")
	used(t, s, changed)
}

// A new connection may be to another server, which was told of no changes. What it has is
// trusted from then on.
func TestNothingFromBeforeANewConnectionIsTrusted(t *testing.T) {
	t.Parallel()
	below := &told{Store: newBelow()}
	server, s := ownServer(t, below)
	changes(t, s, "")
	changed := erase(t, below, kept(t, s, below))
	command(t, server, "CLIENT", "KILL", "TYPE", "normal")
	used(t, s, changed)
}

// A process whose feed hangs leaves Redis out, because it would not learn of a change.
func TestFeedThatHangsEndsTrust(t *testing.T) {
	t.Parallel()
	below, opts := &told{Store: newBelow()}, options()
	opts.MaxAge = time.Hour
	s := open(t, below, opts)
	changes(t, s, "")
	changed := erase(t, below, kept(t, s, below))
	within(t, "the store below is asked", func() bool {
		got, err := s.Load(t.Context(), changed.Ref)
		must(t, err)
		return got.Revision == changed.Revision
	})
}

// Redis is used through sentinels too, whose own connections have no data.
func TestPrimaryThatSentinelsName(t *testing.T) {
	t.Parallel()
	below := &told{Store: newBelow()}
	s, err := redistier.Open(testservers.NewRedisSentinel(t, 0).URL(), below, options())
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	changes(t, s, "")
	kept(t, s, below)
}
