package sim

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// A slot is what is known for certain of one key: what is stored, every answer that
// ever was, every attempt and what it did. Nothing of the product decides here.
type slot struct {
	name string
	ref  retrysafe.Ref

	rec      retrysafe.Record // as committed
	gone     bool             // there is none
	hidden   bool             // a planted fault: the store has lost it
	loaded   retrysafe.Record // a planted fault: what the first load has shown
	highest  int64            // revision ever given
	gen      int              // generation: how often the key was used afresh
	soft     bool             // a crash of the server would forget its last steps,
	firm     int              // and make this its generation
	attempts []attempt
	answers  []answer
	effects  []effect
	key      string // that the provider knows the operation by
	answer   retrysafe.Result
}

// An attempt is what one owner did.
type attempt struct {
	owner      retrysafe.Owner
	gen        int
	begun      bool // its operation has run
	taken      bool // it was given to another because it never began
	tombstoned bool // the provider refuses it
}

// An answer is one that was stored.
type answer struct {
	gen    int
	result *retrysafe.Result
	print  byte // of the request that it answers
	until  time.Time
}

// An effect is one that has happened in the world outside, or in the database.
type effect struct {
	owner  retrysafe.Owner
	gen    int
	at     time.Duration
	booked bool // in the database, by a transaction
}

func (w *world) slot(ref retrysafe.Ref) *slot {
	for i := range w.slots {
		if w.slots[i].ref == ref {
			return &w.slots[i]
		}
	}
	return nil
}

// of returns the attempt of an owner, or nil.
func (s *slot) of(owner retrysafe.Owner) *attempt {
	for i := range s.attempts {
		if s.attempts[i].owner == owner {
			return &s.attempts[i]
		}
	}
	return nil
}

// made returns how many effects a generation has, booked in the database or outside.
func (s *slot) made(gen int, booked bool) (n int) {
	for i := range s.effects {
		if e := &s.effects[i]; e.gen == gen && e.booked == booked {
			n++
		}
	}
	return n
}

// keeps notes whether a crash would forget a step, before it is applied.
func (s *slot) keeps(w *world, asked *retrysafe.Write) {
	if !asked.Relaxed {
		w.flushed()
		return
	}
	if !s.soft {
		s.soft, s.firm = true, s.gen
	}
	if !w.calm && w.hit(w.rates.restarts/4) { // soon, or there would be nothing to forget
		w.later(time.Duration(w.draw(1500))*time.Millisecond, w.restart)
	}
}

// flushed: what was written so far is durable.
func (w *world) flushed() {
	for i := range w.slots {
		w.slots[i].soft = false
	}
}

// crashed: the store's server has crashed. An operation whose reservation is forgotten
// may still run; the next attempt is of its generation, and both have one effect.
func (s *slot) crashed(w *world) {
	if !s.soft {
		return
	}
	w.happens(reservationForgotten)
	got, err := w.mem.Load(outside, s.ref)
	s.rec, s.gone = got, err != nil
	s.gen, s.soft = s.firm, false
	if a := s.of(s.rec.Owner); a != nil {
		a.taken = false
	}
}

// wrote is called for every write, with what was asked for and what is stored now. It
// checks which transitions are allowed, and by which owner.
func (s *slot) wrote(w *world, asked *retrysafe.Write, next *retrysafe.Record) {
	old := &s.rec
	s.keeps(w, asked)
	switch {
	case next.Revision <= s.highest:
		w.violate("S5", s, "revision %d is given out after %d", next.Revision, s.highest)
	case s.gone:
		s.created(w, next)
	case old.Version > retrysafe.RecordVersion:
		w.violate("S14", s, "a record of version %d was overwritten with %s", old.Version, next.State)
	case !w.plant.unfences() && asked.Expect != old.Fence():
		w.violate("S5", s, "a write at revision %d was taken at %d", asked.Expect.Revision, old.Revision)
	case next.Owner != old.Owner:
		s.claimed(w, old, next)
	default:
		s.moved(w, old, next)
	}
	if c := w.at.call; c != nil && c.slot == s && next.Fingerprint.Sum[0] != c.print && w.plant == none {
		w.violate("S6", s, "request %d has changed the record of request %d, which is %s", c.print, next.Fingerprint.Sum[0], next.State)
	}
	if next.Result != nil && (s.gone || old.Result == nil || next.Owner != old.Owner) {
		s.answered(w, next)
	}
	s.bounded(w, next)
	s.rec, s.gone = *next, false
	s.highest = max(s.highest, next.Revision)
}

// created: there was no record.
func (s *slot) created(w *world, next *retrysafe.Record) {
	s.begins(w, next)
	if next.Attempt > 1 || next.State != retrysafe.StateInProgress && next.State != retrysafe.StateAccepted && next.State != retrysafe.StateCompleted {
		w.violate("S5", s, "a key begins as %s, attempt %d", next.State, next.Attempt)
	}
}

// begins notes a new generation.
func (s *slot) begins(w *world, next *retrysafe.Record) {
	s.promised(w, next.UpdatedAt)
	if s.gen++; s.gen > 1 {
		w.happens(generationBegun)
	}
	s.attempts = append(s.attempts, attempt{owner: next.Owner, gen: s.gen})
}

// promised holds that no answer is forgotten that is still promised.
func (s *slot) promised(w *world, now time.Time) {
	for i := range s.answers {
		if now.Before(s.answers[i].until) {
			w.violate("S4", s, "an answer is deleted %v before its deadline", s.answers[i].until.Sub(now))
		}
	}
}

// due reports whether the record's time had come when next was written.
func due(old, next *retrysafe.Record) bool { return !next.UpdatedAt.Before(old.Deadline) }

// ofMessage reports whether the owner is a message.
func ofMessage(o retrysafe.Owner) bool { return [8]byte(o[:8]) == [8]byte{} }

// claimed: the record has another owner.
func (s *slot) claimed(w *world, old, next *retrysafe.Record) {
	message := ofMessage(next.Owner)
	past := due(old, next)
	repeats := old.Effects != retrysafe.EffectsUnprotected && (old.Lapse == retrysafe.LapseRerun || old.Lapse == retrysafe.LapseResume)
	orphan := s.of(old.Owner)
	switch {
	case old.State == retrysafe.StateExpired, old.State == retrysafe.StateCompleted && past:
		if w.policy.OnExpired == retrysafe.ExpiredGone {
			w.violate("S4", s, "a key that was to stay used was used again")
		}
		s.begins(w, next)
		return
	case old.State == retrysafe.StateRetryable && past:
		s.begins(w, next)
		return
	case next.Fingerprint != old.Fingerprint:
		w.violate("S6", s, "a claim has changed the fingerprint of a key that is %s", old.State)
	case ofMessage(old.Owner) && w.plant == none:
		w.violate("S1", s, "an operation runs again whose transaction has committed, with a message in it; it was %s", old.State)
	case old.State == retrysafe.StateRetryable, old.State == retrysafe.StateAccepted:
	case old.State == retrysafe.StateInProgress && message:
		w.happens(handedOver)
	case old.State == retrysafe.StateInProgress && past && repeats:
		w.happens(takenOver)
	case old.State == retrysafe.StateInProgress || old.State == retrysafe.StateUnknown:
		// Only a reservation whose owner never got it may be taken by another attempt.
		if orphan == nil || orphan.begun {
			w.violate("S9", s, "the key of an attempt that is %s and has begun was given to another attempt; effects %s, lapse %s, due %t",
				old.State, old.Effects, old.Lapse, past)
			break
		}
		orphan.taken = true
		w.happens(orphanAdopted)
	default:
		w.violate("S2", s, "a key that is %s was given to another attempt before it was due", old.State)
	}
	s.attempts = append(s.attempts, attempt{owner: next.Owner, gen: s.gen})
}

// moved: the same owner's record is something else now.
func (s *slot) moved(w *world, old, next *retrysafe.Record) {
	notes, before := next.Inquiry.Notes, old.Inquiry.Notes
	by := ""
	// The note of an open question is replaced by that of its answer.
	if n := len(notes); n > len(before) || n > 0 && n == len(before) && notes[n-1] != before[n-1] {
		by = notes[n-1].By
	}
	if next.Fingerprint != old.Fingerprint || next.Attempt != old.Attempt {
		w.violate("S5", s, "a step has changed what only a claim may change")
	}
	set := old.State == retrysafe.StateRetryable || old.State == retrysafe.StateAccepted && old.Attempt > 0
	if by == "" && set && old.Effects != retrysafe.EffectsUnprotected {
		return // it ran too long and was set aside; no other attempt has begun, so its owner may still say how it ended
	}
	switch old.State {
	case retrysafe.StateInProgress:
		s.left(w, old, next, by)
	case retrysafe.StateUnknown:
		s.resolved(w, old, next, by)
	case retrysafe.StateAccepted:
		if by == "" || !due(old, next) {
			w.violate("S9", s, "accepted work became %s without being claimed or due", next.State)
		}
	case retrysafe.StateRetryable:
		happened := by != "" && (next.State == retrysafe.StateUnknown && next.Inquiry.Disputed || next.State == retrysafe.StateCompleted && old.Effects == retrysafe.EffectsKeyed)
		if !happened {
			w.violate("S9", s, "a retryable record became %s, by %q", next.State, by)
		}
	case retrysafe.StateCompleted:
		if next.State != retrysafe.StateExpired || by != "reaper" || !due(old, next) {
			w.violate("S2", s, "an answer became %s, by %q, due %t", next.State, by, due(old, next))
		}
	default:
		w.violate("S5", s, "%s became %s, by %q", old.State, next.State, by)
	}
}

// left: an attempt in progress is something else now, by its owner or by another.
func (s *slot) left(w *world, old, next *retrysafe.Record, by string) {
	repeats := old.Effects != retrysafe.EffectsUnprotected && (old.Lapse == retrysafe.LapseRerun || old.Lapse == retrysafe.LapseResume)
	switch {
	case by == "outbox" && !ofMessage(old.Owner):
		w.violate("S9", s, "the end of a message has settled an attempt that the message does not own; it became %s", next.State)
	case by == "" || by == "outbox":
	case !due(old, next):
		w.violate("S9", s, "an attempt whose lease had not run out became %s, by %q", next.State, by)
	case next.State == retrysafe.StateRetryable || next.State == retrysafe.StateAccepted:
		if !repeats {
			w.violate("S9", s, "a lapsed attempt became %s; effects %s, lapse %s", next.State, old.Effects, old.Lapse)
		}
	case next.Result != nil && old.Lapse != retrysafe.LapseFail:
		w.violate("S9", s, "a lapsed attempt was answered by %q under lapse %s", by, old.Lapse)
	}
}

// resolved: an unknown outcome is something else now, by its owner or by evidence.
func (s *slot) resolved(w *world, old, next *retrysafe.Record, by string) {
	a := s.of(old.Owner)
	switch {
	case old.UnderReview():
		if !next.Result.Equal(old.Result) {
			w.violate("S2", s, "the answer of an outcome under review was changed, by %q; it is %s", by, next.State)
		}
	case by == "":
		if a != nil && a.begun {
			w.happens(ownerCameBack)
		}
	case next.State == retrysafe.StateRetryable || next.State == retrysafe.StateAccepted:
		if old.Effects == retrysafe.EffectsUnprotected && (a == nil || !a.tombstoned) {
			w.violate("S9", s, "an unknown outcome became %s by %q without a proof", next.State, by)
		}
	case next.State == retrysafe.StateCompleted && by == "resolver":
		if w.plant == none && len(s.effects) == 0 {
			w.violate("S9", s, "an unknown outcome was answered as if it had happened, and it has not")
		}
	}
}

// answered: an answer is stored.
func (s *slot) answered(w *world, next *retrysafe.Record) {
	w.happens(answerStored)
	for i := range s.answers {
		if s.answers[i].gen == s.gen {
			w.violate("S2", s, "a second answer is stored")
		}
	}
	s.answers = append(s.answers, answer{gen: s.gen, result: next.Result, print: next.Fingerprint.Sum[0], until: next.UpdatedAt.Add(w.remembers)})
	if kept := next.Deadline.Sub(next.UpdatedAt); kept < w.remembers && w.plant == none && !next.UnderReview() {
		w.violate("S10", s, "an answer is kept for %v instead of %v from the moment it was stored", kept, w.remembers)
	}
}

// deleted: the record is gone.
func (s *slot) deleted(w *world) {
	switch {
	case !s.rec.State.Forgettable():
		w.violate("S10", s, "a record was deleted that is %s", s.rec.State)
	case w.latest.Before(s.rec.Deadline):
		w.violate("S10", s, "a record was deleted before it was due")
	}
	s.promised(w, w.latest)
	if w.traces {
		w.tracef("%s is deleted", s.name)
	}
	s.gone, s.rec = true, retrysafe.Record{}
}

// happened notes an effect of an owner's.
func (s *slot) happened(w *world, owner retrysafe.Owner, booked bool) {
	gen := s.gen
	if a := s.of(owner); a != nil {
		gen = a.gen
	}
	s.effects = append(s.effects, effect{owner: owner, gen: gen, at: w.now, booked: booked})
	w.happens(effectMade)
	if w.traces {
		w.tracef("an effect of owner %x on %s, generation %d, booked %t", owner[12:], s.name, gen, booked)
	}
	if n := s.made(gen, booked); n > 1 {
		w.violate("S1", s, "%d effects of one operation; effects %s, lapse %s", n, w.policy.Effects, w.policy.Lapse)
	}
}

// committed is told of every transaction that has committed.
func (w *world) committed(t *tx) {
	w.flushed()
	var owner retrysafe.Owner
	var s *slot
	for i := range t.staged {
		st := &t.staged[i]
		owner = st.got.Owner
		if s = w.slot(st.got.Ref); i+1 == len(t.staged) {
			s.staged(w, t.staged)
		}
	}
	for i := range t.messages {
		m := &t.messages[i]
		m.gen = s.gen
		for j := range w.messages {
			if other := &w.messages[j]; other.slot == m.slot && other.gen == m.gen && (other.key != m.key || other.sum != m.sum) {
				w.violate("S11", s, "an operation has committed two messages that differ")
			}
		}
		w.messages = append(w.messages, *m)
	}
	switch {
	case t.effect && s == nil:
		w.violate("S1", nil, "a transaction has committed an effect and no record")
	case t.effect:
		s.happened(w, owner, true)
	}
}

// staged is told what one transaction has written to the record: only how it began
// and how it ended can be seen by others.
func (s *slot) staged(w *world, all []stagedRecord) {
	first, last := &all[0], &all[len(all)-1]
	asked := last.asked
	asked.Expect = first.asked.Expect
	s.wrote(w, &asked, &last.got)
	if a := s.of(last.got.Owner); a != nil && w.way == byDoTx {
		a.begun = true
	}
}
