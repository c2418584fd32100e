package tiered

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// An entry is a cached record. Except for the fields that the shard's lock guards it
// never changes, so it is read without a lock.
//
// What it consists of is in few pieces of memory, because the collector visits each piece of
// each entry in each collection.
type entry struct {
	rec    retrysafe.Record // as the store below returned it
	result retrysafe.Result // of rec
	came   instant          // when the store below returned it
	until  instant          // it is trusted before this
	size   int64            // the bytes that it is charged for
	hash   uint64

	// Guarded by the shard's mu:
	used         bool // served since it was cached or last spared
	newer, older *entry
}

// learn processes the reply of the store below to a call that was sent at asked.
func (s *store) learn(at place, t ticket, asked instant, got *retrysafe.Record, err error) {
	if !answered(err) || got.Ref != at.ref {
		at.learn(t, nothing, nil, asked)
		return
	}
	var e *entry
	now := asked
	if keepable(got) {
		now = s.now()
		if until := asked.add(s.trust(got)); now.before(until) {
			e = newEntry(got, now, until)
		}
	}
	at.learn(t, got.Revision, e, now)
}

func newEntry(got *retrysafe.Record, came, until instant) *entry {
	e := &entry{rec: *got, result: *got.Result, came: came, until: until, size: sizeOf(got)}
	e.rec.Result = &e.result
	joinTexts(&e.rec)
	return e
}

// joinTexts moves the record's texts into one piece of memory.
func joinTexts(r *retrysafe.Record) {
	texts := [...]*string{&r.Scope, &r.Key, &r.Operation, &r.Checkpoint.Phase, &r.ProviderRef, &r.Reason}
	var all strings.Builder
	n := 0
	for _, text := range texts {
		n += len(*text)
	}
	all.Grow(n)
	for _, text := range texts {
		begin := all.Len()
		all.WriteString(*text)
		*text = all.String()[begin:]
	}
}

// shareHeader gives the entry the header of another one if it is the same: those of one API
// often are. Otherwise the entry gets a copy, because a caller that has stored the answer may
// go on with its own, and what it writes there would be in the answers of other keys.
func (e *entry) shareHeader(other map[string][]string) {
	if maps.EqualFunc(e.result.Header, other, slices.Equal[[]string]) {
		e.result.Header = other
		return
	}
	own := make(map[string][]string, len(e.result.Header))
	for name, values := range e.result.Header {
		own[name] = slices.Clip(slices.Clone(values))
	}
	e.result.Header = own
}

// answered reports whether a step that ended with err returned the stored record.
func answered(err error) bool {
	return err == nil || errors.Is(err, retrysafe.ErrExists) || errors.Is(err, retrysafe.ErrConflict)
}

// keepable reports whether a record may be cached: it is completed and readable. A
// record that this code cannot read is always loaded from the store.
func keepable(r *retrysafe.Record) bool {
	return r.State == retrysafe.StateCompleted && r.Readable()
}

// trusted reports whether the record may be served: it is not due, and not older than
// MaxAge.
func (e *entry) trusted(now instant) bool { return now.before(e.until) }

// read copies the record out, as it is at now.
func (e *entry) read(out *retrysafe.Record, now instant) {
	*out = e.rec
	out.ReadAt = out.ReadAt.Add(max(now.run-e.came.run, 0))
}

// What a record costs in addition to its texts, as measured.
const (
	overhead       = 608 // the entry, the result and a slot in the map of entries
	headerOverhead = 400 // a header's map, up to eight names
	valueOverhead  = 16  // one string in a header
	noteOverhead   = 80  // one note
)

// sizeOf returns the bytes that a record is charged for.
func sizeOf(r *retrysafe.Record) int64 {
	n := overhead + len(r.Scope) + len(r.Key) + cap(r.KeyText) + len(r.Operation) + cap(r.Request) +
		len(r.Checkpoint.Phase) + cap(r.Checkpoint.Data) + len(r.ProviderRef) + len(r.Reason) + cap(r.Result.Body)
	if names := len(r.Result.Header); names > 0 {
		n += headerOverhead * ((names + 7) / 8)
	}
	for name, values := range r.Result.Header {
		n += len(name)
		for _, v := range values {
			n += valueOverhead + len(v)
		}
	}
	n += noteOverhead * cap(r.Inquiry.Notes)
	for i := range r.Inquiry.Notes {
		n += len(r.Inquiry.Notes[i].By) + len(r.Inquiry.Notes[i].Text) + len(r.Inquiry.Notes[i].ID)
	}
	return int64(n)
}
