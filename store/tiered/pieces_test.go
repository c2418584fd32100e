package tiered_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// A cached answer is in few pieces of memory, since the collector visits each of them, and
// it does not keep what its texts were cut from. Not parallel: it measures the heap.
func TestCachedAnswerIsInFewPieces(t *testing.T) {
	const answers = 2000
	s := tiered.New(discard{}, nil)
	before := heap()
	for i := range answers {
		head := strings.Repeat("x", 10_000) + strconv.Itoa(i)
		w := with("paid", reservation(retrysafe.Ref{Scope: head[10:20], Key: head[9000:]}, 1))
		w.Operation = "POST /payments/" + strconv.Itoa(i)
		if _, err := s.Create(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Stats().Entries; n != answers {
		t.Fatalf("%d answers are cached, want %d", n, answers)
	}
	after := heap()
	runtime.KeepAlive(s)
	if n := float64(after.HeapObjects-before.HeapObjects) / answers; n > 4 {
		t.Errorf("an answer is in %.1f pieces of memory, want the entry, its texts and its body", n)
	}
	if n := (after.HeapAlloc - before.HeapAlloc) / answers; n > 4000 {
		t.Errorf("an answer with a key of 1,000 bytes takes %d bytes", n)
	}
}

// heap returns what is on the heap after a collection.
func heap() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// Answers with equal headers share one, and others have their own.
func TestAnswersHaveTheirOwnHeaders(t *testing.T) {
	t.Parallel()
	s := tiered.New(discard{}, &tiered.Options{MaxAge: time.Hour})
	kinds := []map[string][]string{
		{"Content-Type": {"application/json"}}, {"Content-Type": {"text/plain"}}, {"Content-Type": {"text/plain", "text/html"}},
		{"Location": {"text/plain"}}, {"Content-Type": {"text/plain"}, "Location": {"/1"}}, {}, nil,
	}
	of := func(i int) retrysafe.Write {
		w := with("paid", reservation(retrysafe.Ref{Scope: "acct_1", Key: strconv.Itoa(i)}, 1))
		w.Result.Header = kinds[i*i%11%len(kinds)]
		return w
	}
	const answers = 1000
	for i := range answers {
		if _, err := s.Create(t.Context(), of(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range answers {
		got, err := s.Load(t.Context(), of(i).Ref) // from the cache: there is nothing below
		if want := of(i).Result; err != nil || !got.Result.Equal(want) {
			t.Fatalf("answer %d is %+v (%v), want %+v", i, got.Result, err, want)
		}
	}
}

// An answer that a caller keeps does not keep those that the cache has evicted since. Not
// parallel: it measures the heap.
func TestAnswerInUseKeepsNoOther(t *testing.T) {
	s := tiered.New(discard{}, &tiered.Options{MaxAge: time.Hour, MaxBytes: 4 << 20})
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			w := with(strings.Repeat("x", 1000), reservation(retrysafe.Ref{Scope: "acct_1", Key: strconv.Itoa(i)}, 1))
			if _, err := s.Create(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(0, 400)
	var kept []*retrysafe.Result
	for i := range 400 {
		if got, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acct_1", Key: strconv.Itoa(i)}); err == nil {
			kept = append(kept, got.Result)
		}
	}
	before := heap()
	fill(400, 40_000)
	after := heap()
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("the heap of a cache of 4 MiB has grown by %d MiB while %d answers were kept", grown>>20, len(kept))
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(s)
}

// The header of an answer may be one that its caller writes to later.
func TestCachedHeaderIsTheCachesOwn(t *testing.T) {
	t.Parallel()
	s := tiered.New(discard{}, nil)
	var headers []map[string][]string
	store := func(n int) {
		for i := range n {
			h := map[string][]string{"Content-Type": {"text/plain"}, "Vary": append(make([]string, 0, 4), "Accept")}
			w := with("paid", reservation(retrysafe.Ref{Scope: "acct_" + strconv.Itoa(i%3), Key: strconv.Itoa(len(headers))}, 1))
			w.Result.Header = h
			if _, err := s.Create(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			headers = append(headers, h)
		}
	}
	store(50)
	for _, h := range headers {
		h["Set-Cookie"] = []string{"a secret"}
		h["Content-Type"][0] = "text/html"
		h["Vary"] = append(h["Vary"], "Origin")
	}
	store(50)
	for i := range headers {
		got, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acct_" + strconv.Itoa(i%50%3), Key: strconv.Itoa(i)})
		if err != nil {
			t.Fatal(err)
		}
		h := got.Result.Header
		if len(h) != 2 || h["Content-Type"][0] != "text/plain" || len(h["Vary"]) != 1 || cap(h["Vary"]) != 1 {
			t.Fatalf("answer %d has the header %v", i, h)
		}
	}
}
