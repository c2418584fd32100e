package storekit_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
	"github.com/retrysafe/retrysafe/store/storekit"
)

var ref = retrysafe.Ref{Scope: "tenant", Key: "key"}

func fingerprint(n byte) retrysafe.Fingerprint {
	return retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{n}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fullRecord() retrysafe.Record {
	at := time.Date(2026, 11, 15, 12, 0, 0, 123456000, time.UTC)
	return retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "k\xff\x00y"}, KeyText: []byte("sealed"), Operation: "POST /payments", Fingerprint: fingerprint(7),
		State: retrysafe.StateCompleted, Lapse: retrysafe.LapseResume, Effects: retrysafe.EffectsKeyed, Version: retrysafe.RecordVersion,
		Owner: retrysafe.Owner{1, 2, 3}, Attempt: 4, Request: []byte{}, Checkpoint: retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")},
		Result: &retrysafe.Result{
			Status: 201, Header: map[string][]string{"Location": {"/p/1"}, "X-Two": {"a", ""}, "X-None": {}},
			Body: []byte(`{"z":1.10,"a":1e2}`), Omitted: true,
		},
		ProviderRef: "ch_1", Reason: "because",
		Inquiry: retrysafe.Inquiry{Tries: 3, Dead: true, Notes: []retrysafe.Note{{At: at, By: "resolver", State: retrysafe.StateUnknown, Text: "timed out"}, {By: "operator anna", Text: "released", ID: "a-1"}, {}}},
		Retain:  24 * time.Hour, Revision: 1 << 50, Deadline: at.Add(time.Hour), CreatedAt: at, UpdatedAt: at,
	}
}

func TestRecordsSurviveTheirEncoding(t *testing.T) {
	t.Parallel()
	plain := retrysafe.Record{Ref: ref, Version: 1, State: retrysafe.StateInProgress, Attempt: -1, Revision: -5}
	disputed, asked := plain, plain
	disputed.Inquiry = retrysafe.Inquiry{Disputed: true, Notes: []retrysafe.Note{{Text: "a\x1fb"}, {Text: "\x1f", ID: "a-1"}}}
	asked.Inquiry.Tries = 1
	for _, want := range []retrysafe.Record{fullRecord(), plain, {}, disputed, asked} {
		got, err := storekit.DecodeRecord(storekit.AppendRecord(nil, &want))
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("decoded %+v\nwant    %+v", got, want)
		}
	}
}

func TestW41_DamagedRecordIsUnreadable(t *testing.T) {
	t.Parallel()
	r := fullRecord()
	good := storekit.AppendRecord(nil, &r)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		if _, err := storekit.DecodeRecord(bad); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Fatalf("byte %d flipped: DecodeRecord = %v", i, err)
		}
		if _, err := storekit.DecodeRecord(good[:i]); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Fatalf("cut at %d: DecodeRecord = %v", i, err)
		}
	}
	newer := bytes.Clone(good)
	newer[0] = 2
	if _, err := storekit.DecodeRecord(newer); err == nil || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("a newer encoding: %v", err)
	}
}

// sealed returns the bytes of a record with a checksum that matches.
func sealed(body []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// A record whose fields do not add up is unreadable, also if its checksum matches: a newer
// program may have written it, and what cannot be read may say that it is disputed.
func TestRecordOfAnotherLayoutIsUnreadable(t *testing.T) {
	t.Parallel()
	r := fullRecord()
	good := storekit.AppendRecord(nil, &r)
	body := good[:len(good)-4]
	if _, err := storekit.DecodeRecord(sealed(body)); err != nil {
		t.Fatal(err)
	}
	more := bytes.Clone(body)
	more[bytes.Index(body, storekit.AppendInquiry(nil, &r.Inquiry))+1]++ // the number of notes
	for name, bad := range map[string][]byte{"one note more": more, "a byte more": append(bytes.Clone(body), 0), "a byte less": body[:len(body)-1]} {
		if _, err := storekit.DecodeRecord(sealed(bad)); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResultsSurviveTheirEncoding(t *testing.T) {
	t.Parallel()
	want := fullRecord().Result
	coded := storekit.AppendResult(nil, want)
	got, err := storekit.DecodeResult(coded)
	if err != nil || !got.Equal(want) {
		t.Errorf("DecodeResult = %+v, %v", got, err)
	}
	for range 20 { // whatever the order of a map is
		if again := storekit.AppendResult(nil, want); !bytes.Equal(again, coded) {
			t.Fatalf("equal results are encoded as %x and %x", coded, again)
		}
	}
	if _, err := storekit.DecodeResult(append(coded, 0)); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("trailing bytes: %v", err)
	}
	for i := range coded {
		if _, err := storekit.DecodeResult(coded[:i]); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	// A header named twice would come back as one.
	for name, second := range map[byte]bool{2: true, 1: false} {
		if _, err := storekit.DecodeResult([]byte{0, 0, 2, 1, 0, name, 0, 0}); (err == nil) != second || err != nil && !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("headers 1 and %d: %v", name, err)
		}
	}
}

func TestResultEqual(t *testing.T) {
	t.Parallel()
	base := func() *retrysafe.Result {
		return &retrysafe.Result{Status: 200, Header: map[string][]string{"A": {"1", "2"}}, Body: []byte("b")}
	}
	if !base().Equal(base()) || !(*retrysafe.Result)(nil).Equal(nil) || base().Equal(nil) || (*retrysafe.Result)(nil).Equal(base()) {
		t.Error("equality of equals and of nothing")
	}
	if !(&retrysafe.Result{}).Equal(&retrysafe.Result{Body: []byte{}, Header: map[string][]string{}}) {
		t.Error("no body is an empty body")
	}
	for _, change := range []func(*retrysafe.Result){
		func(r *retrysafe.Result) { r.Status = 201 }, func(r *retrysafe.Result) { r.Body = []byte("c") },
		func(r *retrysafe.Result) { r.Omitted = true }, func(r *retrysafe.Result) { r.Header = nil },
		func(r *retrysafe.Result) { r.Header["A"] = []string{"1"} }, func(r *retrysafe.Result) { r.Header["A"] = []string{"2", "1"} },
		func(r *retrysafe.Result) { r.Header = map[string][]string{"B": {"1", "2"}} },
	} {
		other := base()
		change(other)
		if base().Equal(other) {
			t.Errorf("%+v equals %+v", other, base())
		}
	}
}

func TestQuery(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{0: 100, -1: 100, 5: 5, 1 << 30: retrysafe.MaxList} {
		if got := (retrysafe.Query{Limit: limit}).Size(); got != want {
			t.Errorf("Size of %d = %d, want %d", limit, got, want)
		}
	}
	r := fullRecord()
	r.ReadAt = r.Deadline
	for _, c := range []struct {
		q    retrysafe.Query
		want bool
	}{
		{retrysafe.Query{}, true}, {retrysafe.Query{Due: true}, true}, {retrysafe.Query{Scope: "tenant"}, true}, {retrysafe.Query{Scope: "t"}, false},
		{retrysafe.Query{States: []retrysafe.State{retrysafe.StateUnknown, retrysafe.StateCompleted}}, true},
		{retrysafe.Query{States: []retrysafe.State{retrysafe.StateUnknown}}, false},
	} {
		if got := storekit.Matches(&c.q, &r); got != c.want {
			t.Errorf("%+v matches: %v", c.q, got)
		}
	}
	r.ReadAt = r.Deadline.Add(-1)
	if storekit.Matches(&retrysafe.Query{Due: true}, &r) {
		t.Error("what is not due matches")
	}
}

// FuzzDecodeRecord: no bytes make the decoder panic or ask for memory out of
// proportion, and what decodes encodes to the same bytes.
func FuzzDecodeRecord(f *testing.F) {
	r := fullRecord()
	hammer.Add(f, storekit.AppendRecord(nil, &r))
	hammer.Add(f, storekit.AppendRecord(nil, &retrysafe.Record{}))
	hammer.Add(f, []byte{})
	hammer.Fuzz(f, func(t *testing.T, b []byte) {
		if r, err := storekit.DecodeRecord(b); err == nil {
			again, err := storekit.DecodeRecord(storekit.AppendRecord(nil, &r))
			if err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("decoded %+v, again %+v, %v", r, again, err)
			}
		} else if !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("DecodeRecord = %v", err)
		}
		if res, err := storekit.DecodeResult(b); err == nil {
			again, err := storekit.DecodeResult(storekit.AppendResult(nil, res))
			if err != nil || !again.Equal(res) {
				t.Errorf("decoded %+v, again %+v, %v", res, again, err)
			}
		}
	})
}
