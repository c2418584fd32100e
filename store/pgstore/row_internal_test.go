package pgstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// randomRecord returns any record that could be stored, odd ones more often than
// an engine makes them.
func randomRecord(rnd *rand.Rand) retrysafe.Record {
	text := func() string {
		b := make([]byte, []int{0, 1, 20, 36, 255, 300}[rnd.IntN(6)])
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		switch rnd.IntN(4) {
		case 0:
			return "8e03978e-40d5-43dd-bc93-6894a57f9324"[:min(len(b), 36)]
		case 1:
			return strings.ToValidUTF8(string(b), "?")
		default:
			return string(b)
		}
	}
	optional := func() []byte {
		switch rnd.IntN(4) {
		case 0:
			return nil
		case 1:
			return []byte{}
		default:
			return []byte(text())
		}
	}
	r := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: text(), Key: text()}, Operation: []string{"", "POST ", "POST", "PATCH /", "\x01"}[rnd.IntN(5)] + text(), KeyText: optional(), Request: optional(),
		Version: []uint8{0, 1, 2, 14, 15, 16, uint8(rnd.Uint32())}[rnd.IntN(7)], State: retrysafe.State(1 + rnd.IntN(6)),
		Lapse: retrysafe.LapseQuarantine + retrysafe.Lapse(rnd.IntN(4)), Effects: retrysafe.EffectsUnprotected + retrysafe.Effects(rnd.IntN(3)),
		Attempt: []int{0, 1, 2, -1, math.MaxInt32, math.MinInt32, rnd.Int()}[rnd.IntN(7)],
		Retain:  []time.Duration{0, time.Second, 24 * time.Hour, 90 * time.Minute, 1, -1, 1500 * time.Millisecond, math.MaxInt64, -time.Hour, time.Duration(rnd.Int64())}[rnd.IntN(10)],
		Reason:  text(), ProviderRef: text(), Revision: rnd.Int64(),
	}
	if rnd.IntN(4) == 0 { // of a newer program
		r.Lapse, r.Effects = retrysafe.Lapse(rnd.Uint32()), retrysafe.Effects(rnd.Uint32())
	}
	if rnd.IntN(3) == 0 {
		r.ProviderRef, r.Reason = "", ""
	}
	r.Fingerprint.Alg = []uint8{0, 1, uint8(rnd.Uint32())}[rnd.IntN(3)]
	for i := range r.Fingerprint.Sum {
		r.Fingerprint.Sum[i] = byte(rnd.Uint32())
	}
	for i := range r.Owner {
		r.Owner[i] = byte(rnd.Uint32())
	}
	if rnd.IntN(3) > 0 {
		r.Checkpoint = retrysafe.Checkpoint{Phase: text(), Data: optional()}
	}
	if rnd.IntN(3) > 0 {
		r.Inquiry = retrysafe.Inquiry{Tries: []int{0, 1, 1000}[rnd.IntN(3)], Dead: rnd.IntN(2) == 0, Disputed: rnd.IntN(2) == 0}
		for range []int{0, 1, 32}[rnd.IntN(3)] {
			at := time.UnixMicro(rnd.Int64N(math.MaxInt64 / 2)).UTC()
			r.Inquiry.Notes = append(r.Inquiry.Notes, retrysafe.Note{At: at, By: text(), State: retrysafe.State(rnd.Uint32()), Text: text(), ID: []string{"", "action-1"}[rnd.IntN(2)]})
		}
	}
	if rnd.IntN(3) > 0 {
		r.Result = &retrysafe.Result{Status: rnd.IntN(600), Omitted: rnd.IntN(2) == 0, Body: []byte(text())}
		for range rnd.IntN(4) {
			if r.Result.Header == nil {
				r.Result.Header = map[string][]string{}
			}
			values := []string{}
			for range rnd.IntN(3) {
				values = append(values, text())
			}
			r.Result.Header[text()] = values
		}
	}
	return r
}

// rowOf is what is stored of a record.
func rowOf(r *retrysafe.Record) row {
	k := idOf(r.Ref)
	return row{
		id: k, owner: r.Owner, revision: r.Revision, state: int16(r.State),
		head: appendHead(nil, k, r), tail: appendTail(nil, r), checkpoint: appendCheckpoint(nil, r.Checkpoint),
	}
}

// What is stored of a record is all of it.
func TestRowRoundTrip(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		r := randomRecord(rnd)
		w := rowOf(&r)
		got, err := w.of(r.Ref)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		got.UpdatedAt, got.CreatedAt, got.Deadline, got.ReadAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if !r.Result.Equal(got.Result) {
			t.Fatalf("result %+v came back as %+v", r.Result, got.Result)
		}
		got.Result = r.Result
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v\ncame back as\n%+v", r, got)
		}
		other := r.Ref
		other.Key += "x"
		if _, err := w.of(other); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Fatalf("another key gets the record: %v", err)
		}
	}
}

// What is the same in nearly every record costs nothing: a row that is a few bytes
// shorter is one more on its page.
func TestUsualRowIsShort(t *testing.T) {
	t.Parallel()
	r := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"}, Operation: "POST /payments",
		Fingerprint: retrysafe.Fingerprint{Alg: 1}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1, Retain: 24 * time.Hour,
		Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseQuarantine,
	}
	w, guarded := rowOf(&r), r
	guarded.Fingerprint.Alg = 2 // as an HTTP guard has it
	if got, want := len(rowOf(&guarded).head), len(w.head)+1; got != want {
		t.Errorf("the head of a guard's record takes %d bytes, want %d", got, want)
	}
	const sum = 4
	if got, want := len(w.head), 1+32+(2+len(r.Scope))+17+(2+len("/payments"))+sum; got != want {
		t.Errorf("the head takes %d bytes, want %d", got, want)
	}
	if got, want := len(w.tail), 3+sum; got != want {
		t.Errorf("the tail takes %d bytes, want %d", got, want)
	}
	result := &retrysafe.Result{Status: 201, Body: []byte("{}")}
	r.State, r.Result = retrysafe.StateCompleted, result
	if got, want := len(appendTail(nil, &r)), 3+len(storekit.AppendResult(nil, result))+sum; got != want {
		t.Errorf("the tail of an answer takes %d bytes, want %d", got, want)
	}
	r.Result, r.State = nil, retrysafe.StateUnknown
	if r.AddNote(retrysafe.Note{By: "sweeper", Text: "lease lapsed"}); len(appendTail(nil, &r)) <= 3+sum {
		t.Error("a note is not stored")
	}
}

// A bit that has flipped, anywhere in what the store wrote, never decodes.
func TestDamagedRowNeverDecodes(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 8 {
		r := randomRecord(rnd)
		whole := rowOf(&r)
		refused := func(what string, at int, w row) {
			t.Helper()
			if got, err := w.record(); !errors.Is(err, retrysafe.ErrUnreadable) {
				t.Fatalf("%s, damaged at %d, decodes: %+v, %v", what, at, got, err)
			}
		}
		for name, part := range map[string]func(*row) *[]byte{
			"head":       func(w *row) *[]byte { return &w.head },
			"tail":       func(w *row) *[]byte { return &w.tail },
			"checkpoint": func(w *row) *[]byte { return &w.checkpoint },
		} {
			stored := *part(&whole)
			for bit := range 8 * len(stored) {
				w, b := whole, bytes.Clone(stored)
				b[bit/8] ^= 1 << (bit % 8)
				*part(&w) = b
				refused(name, bit, w)
			}
			for cut := range stored { // cut off, but a checkpoint that is gone is none
				if cut == 0 && name == "checkpoint" {
					continue
				}
				w := whole
				*part(&w) = stored[:cut]
				refused(name+" cut off", cut, w)
			}
			for range 100 {
				if len(stored) < 8 {
					break
				}
				w, b := whole, bytes.Clone(stored)
				binary.BigEndian.PutUint64(b[rnd.IntN(len(b)-7):], rnd.Uint64())
				if *part(&w) = b; !bytes.Equal(b, stored) {
					refused(name+" overwritten", 0, w)
				}
			}
		}
		for bit := range 16 {
			w := whole
			w.state ^= 1 << bit
			refused("state", bit, w)
		}
		for bit := range 128 {
			w := whole
			w.id[bit/8] ^= 1 << (bit % 8)
			refused("id", bit, w)
		}
	}
}

// Fields that do not add up never decode, also where the checksum is right.
func TestRowOfOtherFieldsNeverDecodes(t *testing.T) {
	t.Parallel()
	r := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "k"}, Operation: "POST /payments", Fingerprint: retrysafe.Fingerprint{Alg: usualAlg},
		State: retrysafe.StateUnknown, Attempt: 1, Lapse: retrysafe.LapseQuarantine, Effects: retrysafe.EffectsUnprotected,
		Checkpoint: retrysafe.Checkpoint{Phase: "charge", Data: []byte("ch_1")}, Inquiry: retrysafe.Inquiry{Tries: 1},
	}
	k := idOf(r.Ref)
	sealed := func(b, with []byte) []byte { return appendSum(b, b, with) }
	body := func(part []byte) []byte { return bytes.Clone(part[:len(part)-4]) }
	whole := rowOf(&r)
	head, tail, point, state := body(whole.head), body(whole.tail), body(whole.checkpoint), []byte{byte(r.State)}
	method := bytes.IndexByte(head, byte(len("/payments"))) - 1
	unknown := bytes.Clone(head)
	unknown[method] = byte(len(methods) + 1)
	for what, change := range map[string]func(w *row){
		"a head that is too short":       func(w *row) { w.head = sealed(head[:len(head)-1], k[:]) },
		"a head that is too long":        func(w *row) { w.head = sealed(append(bytes.Clone(head), 0), k[:]) },
		"an unknown method":              func(w *row) { w.head = sealed(unknown, k[:]) },
		"a tail that is too short":       func(w *row) { w.tail = sealed(tail[:2], state) },
		"an inquiry that is cut off":     func(w *row) { w.tail = sealed(append(bytes.Clone(tail[:3]), 1, tail[4]), state) },
		"a tail that ends in no answer":  func(w *row) { w.tail = sealed(append(bytes.Clone(tail), 0xff), state) },
		"a checkpoint that is too short": func(w *row) { w.checkpoint = sealed(point[:len(point)-1], nil) },
		"a checkpoint that is too long":  func(w *row) { w.checkpoint = sealed(append(bytes.Clone(point), 0), nil) },
		"a state below all":              func(w *row) { w.state = -1 },
		"a state above all":              func(w *row) { w.state = math.MaxUint8 + 1 + w.state },
	} {
		w := whole
		change(&w)
		if got, err := w.record(); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("%s decodes: %+v, %v", what, got, err)
		}
	}
	if _, err := whole.record(); err != nil {
		t.Error(err)
	}
}

// Whatever stands in a row whose checksums are right decodes without a panic, and
// what does decode is stored again as the same record.
func FuzzRow(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 20 {
		r := randomRecord(rnd)
		w := rowOf(&r)
		point := w.checkpoint
		if len(point) > 0 {
			point = point[:len(point)-4]
		}
		hammer.Add(f, w.head[:len(w.head)-4], w.tail[:len(w.tail)-4], point, uint8(r.State))
	}
	hammer.Fuzz(f, func(t *testing.T, head, tail, point []byte, state uint8) {
		w := row{state: int16(state)}
		ours := func(part, with []byte) []byte { // a part of the layout that we read
			part = append([]byte{0}, part...)
			if len(part) > 1 {
				part = part[1:]
			}
			part[0] = layout<<4 | part[0]&15
			return appendSum(part, part, with)
		}
		w.head, w.tail = ours(head, w.id[:]), ours(tail, []byte{state})
		if len(point) > 0 {
			w.checkpoint = appendSum(bytes.Clone(point), point, nil)
		}
		r, err := w.record()
		if err != nil {
			if !errors.Is(err, retrysafe.ErrUnreadable) {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		again := rowOf(&r)
		same, err := again.record()
		if err != nil {
			t.Fatalf("%+v does not decode once it is stored: %v", r, err)
		}
		if !r.Result.Equal(same.Result) {
			t.Fatalf("%+v came back as %+v", r.Result, same.Result)
		}
		if same.Result = r.Result; !reflect.DeepEqual(r, same) {
			t.Fatalf("%+v\ncame back as\n%+v", r, same)
		}
	})
}
