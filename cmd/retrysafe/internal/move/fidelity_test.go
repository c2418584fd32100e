package move_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/test/seed"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// dice make records that nothing but chance has thought of.
type dice struct{ *rand.Rand }

func (d dice) bytes(most int) []byte {
	if d.IntN(3) == 0 {
		return nil
	}
	b := make([]byte, d.IntN(most+1))
	for i := range b {
		b[i] = byte(d.Uint32())
	}
	return b
}

func (d dice) owner() (o retrysafe.Owner) {
	for i := range o {
		o[i] = byte(d.Uint32())
	}
	return o
}

func (d dice) duration() time.Duration {
	return []time.Duration{time.Duration(d.Int64N(int64(time.Hour))), time.Minute, 24 * time.Hour, 10 * 365 * 24 * time.Hour, time.Nanosecond}[d.IntN(5)]
}

func (d dice) inquiry() (q retrysafe.Inquiry) {
	if d.IntN(2) == 0 {
		return q
	}
	q = retrysafe.Inquiry{Tries: d.IntN(5), Dead: d.IntN(2) == 0, Disputed: d.IntN(2) == 0}
	for range d.IntN(3) {
		q.Notes = append(q.Notes, retrysafe.Note{
			At: time.UnixMicro(d.Int64N(1 << 50)).UTC(), By: string(d.bytes(9)), State: retrysafe.State(1 + d.IntN(6)), Text: string(d.bytes(90)),
		})
	}
	return q
}

func (d dice) result() *retrysafe.Result {
	res := &retrysafe.Result{Status: 100 + d.IntN(500), Omitted: d.IntN(9) == 0, Body: append([]byte{}, d.bytes(3000)...)}
	if d.IntN(2) == 0 {
		res.Header = map[string][]string{"Content-Type": {"application/json"}, "X-" + fmt.Sprint(d.IntN(9)): {string(d.bytes(9)), ""}}
	}
	return res
}

// record is any record in a state, with whatever term; a negative one is over.
func (d dice) record(n int, state retrysafe.State) retrysafe.Write {
	r := retrysafe.Write{Record: retrysafe.Record{
		Ref:         retrysafe.Ref{Scope: []string{"acct_1", "", "ünï", string(d.bytes(30)), retrysafe.SystemScope("audit")}[d.IntN(5)], Key: fmt.Sprint(n, ":") + string(d.bytes(20))},
		KeyText:     d.bytes(40),
		Operation:   []string{"POST /payments", "", "DELETE /x", "\x00"}[d.IntN(4)],
		Fingerprint: retrysafe.Fingerprint{Alg: uint8(d.IntN(4))},
		State:       state,
		Lapse:       retrysafe.LapseQuarantine + retrysafe.Lapse(d.IntN(4)),
		Effects:     retrysafe.EffectsUnprotected + retrysafe.Effects(d.IntN(3)),
		Version:     uint8(1 + d.IntN(20)), // also such as this program does not know
		Owner:       d.owner(),
		Attempt:     d.IntN(5),
		Request:     d.bytes(500),
		ProviderRef: string(d.bytes(20)),
		Reason:      string(d.bytes(50)),
		Inquiry:     d.inquiry(),
		Retain:      d.duration(),
	}, Term: d.duration()}
	copy(r.Fingerprint.Sum[:], d.bytes(32))
	if d.IntN(4) == 0 {
		r.Term = -r.Term
	}
	if d.IntN(2) == 0 {
		r.Checkpoint = retrysafe.Checkpoint{Phase: "charged", Data: d.bytes(50)}
	}
	if state == retrysafe.StateCompleted {
		r.Result = d.result()
	}
	return r
}

var allStates = []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateUnknown, retrysafe.StateExpired}

// Every field of every record comes as it went, between all kinds of stores, and what
// was due is found by a process that had the destination open before.
func TestEveryFieldSurvives(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		d := dice{rand.New(rand.NewPCG(seed.For(t), 0))}
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		if due, err := to.List(t.Context(), retrysafe.Query{Due: true}); err != nil || len(due) > 0 { // it has looked before
			t.Fatalf("List = %v, %v", due, err)
		}
		for n := range 600 {
			r, err := from.Create(t.Context(), d.record(n, allStates[n%len(allStates)]))
			must(t, err)
			if d.IntN(3) > 0 {
				continue
			}
			next := d.record(n, allStates[d.IntN(len(allStates))])
			next.Ref, next.Expect, next.SetCheckpoint = r.Ref, r.Fence(), !next.Checkpoint.IsZero()
			next.Overwrite = d.IntN(2) == 0
			_, err = from.Swap(t.Context(), next)
			must(t, err)
		}
		before := everything(t, from)
		report, err := move.Records(t.Context(), from, to, &move.Options{Batch: 70})
		must(t, err)
		if report.Records != len(before) || report.Again != 0 {
			t.Errorf("moved %+v of %d", report, len(before))
		}
		same(t, everything(t, to), before, report.Took)

		var want []retrysafe.Ref
		for ref, r := range before {
			if r.Due() {
				want = append(want, ref)
			}
		}
		due, err := to.List(t.Context(), retrysafe.Query{Due: true, Limit: retrysafe.MaxList})
		must(t, err)
		for _, ref := range want {
			if !slices.ContainsFunc(due, func(r retrysafe.Record) bool { return r.Ref == ref }) {
				t.Errorf("%+v was due and is not found", before[ref])
			}
		}
	})
}

// same holds records of a destination against those of its source. A deadline is as
// far as it was, but for how long the move took.
func same(t *testing.T, got, want map[retrysafe.Ref]retrysafe.Record, took time.Duration) {
	t.Helper()
	for ref, w := range want {
		g, ok := got[ref]
		if !ok {
			t.Errorf("%q is lost", ref)
			continue
		}
		if late := g.Deadline.Sub(w.Deadline); late < 0 || late > took {
			t.Errorf("%q: the deadline came %v late, in a move of %v", ref, late, took)
		}
		g.Deadline = w.Deadline
		if !bytes.Equal(storekit.AppendRecord(nil, &g), storekit.AppendRecord(nil, &w)) { // every field that is stored
			t.Errorf("%q\n came as %+v\nwent as %+v", ref, g, w)
		}
	}
	for ref := range got {
		if _, ok := want[ref]; !ok {
			t.Errorf("%q is there, and was not at the source", ref)
		}
	}
}
