package linear

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe"
)

// scope is whose keys they are.
const scope = "linear"

func refOf(key uint32) retrysafe.Ref {
	return retrysafe.Ref{Scope: scope, Key: fmt.Sprintf("key-%d", key)}
}

func ownerOf(mark uint64) (o retrysafe.Owner) {
	binary.BigEndian.PutUint64(o[:], mark)
	o[15] = 1 // the zero owner is not a valid one
	return o
}

// markOf is the mark that [ownerOf] was given, or zero.
func markOf(o retrysafe.Owner) uint64 {
	mark := binary.BigEndian.Uint64(o[:])
	if o != ownerOf(mark) {
		return 0
	}
	return mark
}

// textOf is a mark as it is written.
func textOf(mark uint64) string { return strconv.FormatUint(mark, 36) }

// readMark is the mark that all texts are, or zero.
func readMark(texts ...string) uint64 {
	for _, t := range texts {
		if t != texts[0] {
			return 0
		}
	}
	mark, err := strconv.ParseUint(texts[0], 36, 64)
	if err != nil {
		return 0
	}
	return mark
}

// attemptOf is a number of an attempt that belongs to a mark.
func attemptOf(mark uint64) int { return 2 + int(mark%1000) }

// create is the write that a create gives to the store.
func (a *ask) create(key uint32) retrysafe.Write {
	w := a.write(key)
	w.Owner = ownerOf(a.Owner)
	return w
}

// swap is the write that a swap gives to the store. Its owner counts only if it
// overwrites: otherwise the stored owner stays.
func (a *ask) swap(key uint32) retrysafe.Write {
	w := a.write(key)
	w.Owner, w.Overwrite = ownerOf(a.Mark), a.Overwrite
	w.Expect = retrysafe.Fence{Revision: a.Revision, Owner: ownerOf(a.Owner)}
	return w
}

func (a *ask) write(key uint32) retrysafe.Write {
	text := textOf(a.Mark)
	w := retrysafe.Write{
		Record: retrysafe.Record{
			Ref: refOf(key), State: a.State, Version: retrysafe.RecordVersion,
			Operation: text, Request: []byte(text), Attempt: attemptOf(a.Mark), // the head
			Reason: text, ProviderRef: text, // the tail
		},
		Term: time.Duration(a.Term) * time.Microsecond, SetCheckpoint: a.SetPoint,
	}
	w.Fingerprint.Alg = 1
	copy(w.Fingerprint.Sum[:], text)
	if a.State == retrysafe.StateCompleted {
		w.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Mark": {text}}, Body: []byte(text)}
	}
	if a.Point {
		w.Checkpoint = retrysafe.Checkpoint{Phase: text, Data: []byte(text)}
	}
	return w
}

// observe is what a record shows.
func observe(r *retrysafe.Record, key uint32) observation {
	if r.Revision == 0 {
		return observation{}
	}
	s := observation{
		Revision: r.Revision, Owner: markOf(r.Owner), State: r.State,
		Deadline: r.Deadline.UnixMicro(), ReadAt: r.ReadAt.UnixMicro(),
		Head: readMark(r.Operation, string(r.Request)),
		Tail: readMark(r.Reason, r.ProviderRef),
	}
	if !r.Checkpoint.IsZero() {
		s.Point = readMark(r.Checkpoint.Phase, string(r.Checkpoint.Data))
	}
	var sum [len(r.Fingerprint.Sum)]byte
	copy(sum[:], textOf(s.Head))
	s.Torn = r.Ref != refOf(key) || s.Owner == 0 || s.Head == 0 || s.Tail == 0 || s.Point == 0 && !r.Checkpoint.IsZero() ||
		r.Fingerprint.Sum != sum || r.Attempt != attemptOf(s.Head) || tornResult(r, textOf(s.Tail))
	return s
}

func tornResult(r *retrysafe.Record, text string) bool {
	if r.State != retrysafe.StateCompleted {
		return r.Result != nil
	}
	return !r.Result.Equal(&retrysafe.Result{Status: 201, Header: map[string][]string{"Mark": {text}}, Body: []byte(text)})
}
