package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// putMessages commits messages that are identified by their payloads.
func putMessages(t *testing.T, s *pgstore.Store, messages ...outbox.Message) {
	t.Helper()
	tx, _, err := s.BeginTx(t.Context())
	must(t, err)
	must(t, tx.(outbox.Enqueuer).Enqueue(t.Context(), messages...))
	must(t, tx.Commit(t.Context()))
}

func quickly(t *testing.T, s *pgstore.Store, shards []outbox.Shard, known []int64, limit int) (list []outbox.Delivery, all bool) {
	t.Helper()
	list, all, err := s.Outbox().DueExcept(t.Context(), shards, known, limit)
	must(t, err)
	return list, all
}

func idsOf(list []outbox.Delivery) (ids []int64) {
	for _, d := range list {
		ids = append(ids, d.ID)
	}
	return ids
}

// Many acknowledgements of messages that lie side by side are one range of ids. Of it
// those go that are named, under the shard that is named, and under an epoch that holds.
func TestManyEndingsTakeOnlyWhatTheyName(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	var all []outbox.Message
	for n := range 120 {
		all = append(all, outbox.Message{Topic: "t", Group: fmt.Sprint("group ", n), Payload: []byte("p")})
	}
	putMessages(t, s, all...)
	first, second := retrysafe.Owner{1}, retrysafe.Owner{2}
	lease := func(worker retrysafe.Owner, term time.Duration) []outbox.Shard {
		held, err := s.Outbox().Lease(t.Context(), worker, term)
		must(t, err)
		return held.Shards
	}
	old := lease(first, time.Hour)
	list, _ := quickly(t, s, old, nil, 1000)
	if len(list) != len(all) {
		t.Fatalf("%d messages are due, want %d", len(list), len(all))
	}
	var acks []outbox.Ack
	want := map[int64]bool{} // what stays
	for i, d := range list {
		ack := outbox.Ack{ID: d.ID, Shard: d.Shard, Group: d.Group, Kind: outbox.AckDelivered, Tries: 1}
		switch {
		case i%3 == 0: // not named
			want[d.ID] = true
			continue
		case i%10 == 1: // named under another shard that the worker holds
			want[d.ID] = true
			ack.Shard = old[slices.IndexFunc(old, func(o outbox.Shard) bool { return o != d.Shard })]
		}
		acks = append(acks, ack)
	}
	end := func(refused error) {
		t.Helper()
		results, err := s.Outbox().Ack(t.Context(), acks)
		must(t, err)
		for i := range results {
			if !errors.Is(results[i].Err, refused) {
				t.Fatalf("ack %d = %v, want %v", i, results[i].Err, refused)
			}
		}
	}
	left := func(shards []outbox.Shard) []int64 {
		t.Helper()
		list, _ := quickly(t, s, shards, nil, 1000)
		return idsOf(list)
	}
	lease(first, 0)
	held := lease(second, time.Hour)
	end(outbox.ErrFenced)
	if ids := left(held); len(ids) != len(all) {
		t.Fatalf("under epochs that have ended %d messages were deleted", len(all)-len(ids))
	}
	for i := range acks {
		acks[i].Shard.Epoch = held[slices.IndexFunc(held, func(h outbox.Shard) bool { return h.N == acks[i].Shard.N })].Epoch
	}
	end(nil)
	for _, id := range left(held) {
		if !want[id] {
			t.Errorf("message %d is left", id)
		}
		delete(want, id)
	}
	if len(want) > 0 {
		t.Errorf("%d messages are gone that were not named, or under another shard", len(want))
	}
}

// A quick read leaves out known messages wherever their ids lie, returns large bodies up
// to its bound, and gives up where too many messages have failed.
func TestQuickReadOfAnyMessages(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	text := func(group, payload string) outbox.Message {
		return outbox.Message{Topic: "t", Group: group, Payload: []byte(payload)}
	}
	large := strings.Repeat("x", 900_000)
	putMessages(t, s, text("a", "1"), text("a", large), text("b", "2"))
	exec(t, conn, `ALTER TABLE retrysafe_outbox ALTER COLUMN id RESTART WITH 10000000000`)
	putMessages(t, s, text("a", "3"), text("b", "4"))
	list, all := quickly(t, s, held.Shards, nil, 5000)
	if len(list) != 5 || !all || len(list[1].Payload) != len(large) {
		t.Fatalf("%d of 5 messages come, with a large one among them; all of them: %t", len(list), all)
	}
	known, five := []int64{list[0].ID, list[1].ID, list[3].ID}, idsOf(list)
	list, all = quickly(t, s, held.Shards, known, 5000)
	if len(list) != 2 || !all || string(list[0].Payload) != "2" || string(list[1].Payload) != "4" {
		t.Fatalf("of 5 messages three are known, and %d come; all of them: %t", len(list), all)
	}
	exec(t, conn, `INSERT INTO retrysafe_outbox (line, shard, due, enqueued, body) SELECT 0, 0, 9000000000000000000, 1, '' FROM generate_series(1, 20) i`)
	putMessages(t, s, text("a", "5"))
	if list, all = quickly(t, s, held.Shards, five, 16); len(list) != 0 || all {
		t.Fatalf("behind 20 messages that are kept back %d come of a read of 16; all of them: %t", len(list), all)
	}
	exec(t, conn, `INSERT INTO retrysafe_outbox (line, shard, tries, due, enqueued, body)
		SELECT i, 0, 1, 9000000000000000000, 1, '' FROM generate_series(1, 300) i`)
	if list, all = quickly(t, s, held.Shards, nil, 5000); len(list) != 0 || all {
		t.Fatalf("beside 300 failed messages %d come; all of them: %t", len(list), all)
	}
}

// A quick read ends before a message that is too large for it: what is behind that in its
// group would overtake it.
func TestQuickReadEndsBeforeALargeMessage(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	exec(t, conn, `INSERT INTO retrysafe_outbox (line, shard, due, enqueued, body) SELECT i, 0, 1, 1, '' FROM generate_series(1, 700) i`)
	putMessages(t, s, outbox.Message{Topic: "t", Group: "a", Payload: make([]byte, 100_000)}, outbox.Message{Topic: "t", Group: "a", Payload: []byte("behind")})
	list, _ := quickly(t, s, held.Shards, nil, 5000)
	if n := len(list); n < 700 || n == 701 && list[700].Topic == "t" && len(list[700].Payload) < 100_000 {
		t.Errorf("%d messages come, 700 before the large one; the last may have overtaken it", n)
	}
	if list, all := quickly(t, s, held.Shards, nil, 0); len(list) != 0 || !all {
		t.Errorf("of no messages %d come; all of them: %t", len(list), all)
	}
}

// Groups that are held up stay so, however many there are: no message comes before one of
// its group that waits to be sent again, also where two of a group wait. What is before the
// first that waits comes in its order.
func TestDueOfGroupsThatAreHeldUp(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	const anew, again, waits = "0, 1", "1, 1", "1, 9000000000000000000" // how often it was sent, and when it is due
	put := func(n int, line, sent string) (id int64) {
		t.Helper()
		return one[int64](t, conn, fmt.Sprintf(`WITH put AS (INSERT INTO retrysafe_outbox (line, shard, tries, due, enqueued, body)
			SELECT %s, 0, %s, 1, '' FROM generate_series(1, %d) i RETURNING id) SELECT min(id) FROM put`, line, sent, n))
	}
	put(300, "10 * i", waits)
	put(300, "10 * i", anew)
	first := put(300, "7", anew)
	put(2, "7", waits)
	put(1, "7", anew)
	shards := slices.Clone(held.Shards)
	for range 20 { // from other beginnings
		for _, limit := range []int{2, 1000} {
			due, err := s.Outbox().Due(t.Context(), held.Shards, limit)
			must(t, err)
			for n, d := range due {
				if d.ID != first+int64(n) {
					t.Fatalf("message %d of the group comes as the %dth of %d; the others wait", d.ID-first, n, len(due))
				}
			}
			if len(due) != min(limit, 300) {
				t.Fatalf("%d messages come, want %d", len(due), min(limit, 300))
			}
		}
	}
	if !slices.Equal(held.Shards, shards) {
		t.Error("a read has changed the order of the caller's shards")
	}

	// More messages are due again than one read looks at, before those that wait.
	exec(t, conn, `DELETE FROM retrysafe_outbox`)
	put(200, "i", again)
	put(200, "1000 + i", waits)
	behind := put(200, "1000 + i", anew)
	for range 20 {
		due, err := s.Outbox().Due(t.Context(), held.Shards, 1000)
		must(t, err)
		if len(due) == 0 || slices.ContainsFunc(due, func(d outbox.Delivery) bool { return d.ID >= behind }) {
			t.Fatalf("%d messages come, of those that wait or of none", len(due))
		}
	}
}

// Bodies of more bytes than one read returns are left for the next ones.
func TestQuickReadIsBounded(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, &pgstore.Options{Timeout: patience}), connect(t, url)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	m := outbox.Message{Topic: "t", Key: "k", Payload: make([]byte, 1<<20)}
	exec(t, conn, `INSERT INTO retrysafe_outbox (line, shard, due, enqueued, body) SELECT i, 0, 1, 1, $1 FROM generate_series(1, 70) i`, outbox.AppendMessage(nil, &m))
	if list, err := s.Outbox().Due(t.Context(), held.Shards, 100); err != nil || len(list) != 64 {
		t.Fatalf("of 70 messages of a megabyte %d come at once, %v; want 64", len(list), err)
	}
	var known []int64
	for _, want := range []int{64, 6, 0} {
		list, all := quickly(t, s, held.Shards, known, 5000)
		if len(list) != want || !all {
			t.Fatalf("behind %d messages of a megabyte %d come, want %d; all of them: %t", len(known), len(list), want, all)
		}
		for _, d := range list {
			known = append(known, d.ID)
			if !slices.Contains(held.Shards, d.Shard) {
				t.Fatalf("message %d comes under %+v, which is not held", d.ID, d.Shard)
			}
		}
	}
}
