package sim

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
)

// The provider is the world outside: it is called, it does what it is asked to, and
// it can be asked what it did. It honours keys where the policy relies on that.

var (
	errRefused = errors.New("sim: the provider refuses")
	errDoubt   = errors.New("sim: the provider does not answer")
)

// charge calls the provider for an attempt. What is not known to have happened is an
// error, and what is known not to have is marked so.
func (w *world) charge(s *slot, owner retrysafe.Owner, key string) error {
	f := w.travels()
	if w.traces {
		w.tracef("calls the provider, owner %x%s", owner[12:], transitNames[f])
	}
	switch f {
	case losesRequest:
		if w.draw(2) == 0 {
			return retrysafe.NotExecuted(errRefused) // nothing was sent
		}
		_ = w.gives()
		return errDoubt
	case comesLate:
		w.happens(effectLate)
		w.later(w.soon(), func() { _ = w.charged(s, owner, key) })
		_ = w.gives()
		return errDoubt
	default:
	}
	err := w.charged(s, owner, key)
	if w.returns(f) != nil {
		return errDoubt
	}
	return err
}

// charged is what the provider does.
func (w *world) charged(s *slot, owner retrysafe.Owner, key string) error {
	if w.policy.Effects != retrysafe.EffectsUnprotected && w.plant != forgetfulProvider {
		switch s.key {
		case key:
			w.happens(effectRepeated)
			return nil
		case "":
			s.key = key
		default:
			w.violate("S1", s, "the provider gets the key %q, and had %q", key, s.key)
		}
	} else if a := s.of(owner); a != nil && a.tombstoned {
		w.happens(effectRefused)
		return retrysafe.NotExecuted(errRefused)
	}
	s.happened(w, owner, false)
	return nil
}

var _ janitor.Resolver = (*node)(nil)

// Resolve implements [janitor.Resolver]: it asks the provider, which shows what it
// did only after a while, but refuses what it is told to at once.
func (n *node) Resolve(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	w := n.w
	f := w.travels()
	if f == losesRequest || f == comesLate {
		return retrysafe.Evidence{}, w.gives()
	}
	v := w.finding(&r)
	if w.traces {
		w.tracef("is told: %s, proof %d", v.Finding, v.Proof)
	}
	if err := w.returns(f); err != nil {
		return retrysafe.Evidence{}, err
	}
	return v, nil
}

func (w *world) finding(r *retrysafe.Record) retrysafe.Evidence {
	s := w.slot(r.Ref)
	a := s.of(r.Owner)
	if w.plant == liar {
		return janitor.Tombstoned("so it says")
	}
	keyed := r.Effects == retrysafe.EffectsKeyed || w.way == byMessage
	for i := range s.effects {
		e := &s.effects[i]
		mine := (keyed || a != nil && e.gen == a.gen) && e.booked == (r.Effects == retrysafe.EffectsInTx && w.way != byMessage)
		shows := e.at+w.lag <= w.now || w.tombstones || r.Effects == retrysafe.EffectsInTx
		if mine && shows {
			return janitor.Happened(w.result(s, r.Fingerprint.Sum[0]), "it is there")
		}
	}
	if w.tombstones && r.Effects == retrysafe.EffectsUnprotected && a != nil {
		a.tombstoned = true
		w.happens(tombstonePlaced)
		return janitor.Tombstoned("it was not there, and will not be")
	}
	return janitor.NotHappened("it is not there")
}

// A message is one that a transaction has committed.
type message struct {
	id    int64           // once it was sent
	owner retrysafe.Owner // of the key that it settles
	key   string
	sum   uint64
	gen   int
	slot  int
	sent  int
}

var seed = maphash.MakeSeed()

func messageOf(m *outbox.Message) message {
	return message{owner: m.Settles.Owner, key: m.Key, sum: maphash.Bytes(seed, m.Payload), slot: int(m.Payload[0])}
}

// deliver is the sink of the outbox: a provider that honours keys.
func (w *world) deliver(ctx context.Context, d *outbox.Delivery) outbox.Receipt {
	w.covered(d)
	late := w.dragsSink(ctx)
	f := w.travels()
	if late && f == arrives {
		f = losesReply
	}
	if w.traces {
		w.tracef("sends message %d%s", d.ID, transitNames[f])
	}
	w.happens(messageSent)
	known := false
	for i := range w.messages {
		m := &w.messages[i]
		if m.key == d.Key && m.sum == maphash.Bytes(seed, d.Payload) {
			known = true
			m.sent++
			if d.Settles != nil && m.owner == d.Settles.Owner {
				m.id = d.ID
			}
		}
	}
	s := &w.slots[d.Payload[0]]
	if !known {
		w.violate("S11", s, "a message is sent that no transaction has committed, or with other bytes")
	}
	if !w.calm && w.hit(w.rates.permanent) {
		return outbox.Receipt{Err: outbox.Permanent(errRefused)}
	}
	if w.plant == sendsForEver {
		return outbox.Receipt{Err: errRefused}
	}
	var owner retrysafe.Owner
	if d.Settles != nil {
		owner = d.Settles.Owner
	}
	switch f {
	case losesRequest:
		return outbox.Receipt{Err: w.gives()}
	case comesLate:
		w.happens(effectLate)
		key := d.Key
		w.later(w.soon(), func() { _ = w.charged(s, owner, key) })
		return outbox.Receipt{Err: w.gives()}
	default:
	}
	err := w.charged(s, owner, d.Key)
	if lost := w.returns(f); lost != nil {
		err = lost
	}
	if err != nil {
		return outbox.Receipt{Err: err}
	}
	if s.answer.Status == 0 { // under one key it says the same each time
		s.answer = w.result(s, d.Payload[1])
	}
	answer := s.answer
	w.cancelsPass()
	return outbox.Receipt{Answer: &answer}
}

// result is an answer that no other attempt gives. It says whose it is.
func (w *world) result(s *slot, print byte) retrysafe.Result {
	w.serial++
	n := w.serial
	return retrysafe.Result{Status: 201, Body: []byte{s.index(w), print, byte(n >> 16), byte(n >> 8), byte(n)}}
}

func (s *slot) index(w *world) byte {
	for i := range w.slots {
		if s == &w.slots[i] {
			return byte(i)
		}
	}
	return 0xff
}

// The outbox of the store, on the same network.

var (
	_ outbox.Store       = (*store)(nil)
	_ outbox.QuickReader = (*store)(nil)
)

// Lease implements [outbox.Store].
func (s *store) Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (outbox.Lease, error) {
	f := s.w.reaches()
	if err := ctx.Err(); err != nil {
		return outbox.Lease{}, err
	}
	if f == losesRequest || f == comesLate {
		return outbox.Lease{}, s.w.gives()
	}
	term = s.w.termOf(term)
	held, err := s.w.mem.Outbox().Lease(outside, worker, term)
	s.w.leased(term)
	if err := s.w.drags(ctx); err != nil {
		return outbox.Lease{}, err
	}
	if lost := s.w.returns(f); lost != nil {
		return outbox.Lease{}, lost
	}
	return held, err
}

// Due implements [outbox.Store].
func (s *store) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	f := s.w.reaches()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f == losesRequest || f == comesLate {
		return nil, s.w.gives()
	}
	list, err := s.w.mem.Outbox().Due(outside, shards, limit)
	if err := s.w.drags(ctx); err != nil {
		return nil, err
	}
	if lost := s.w.returns(f); lost != nil {
		return nil, lost
	}
	s.w.offered(list)
	return list, err
}

// DueExcept implements [outbox.QuickReader].
func (s *store) DueExcept(ctx context.Context, shards []outbox.Shard, known []int64, limit int) ([]outbox.Delivery, bool, error) {
	f := s.w.reaches()
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	if f == losesRequest || f == comesLate {
		return nil, false, s.w.gives()
	}
	list, all, err := s.w.mem.Outbox().DueExcept(outside, shards, known, limit)
	if err := s.w.drags(ctx); err != nil {
		return nil, false, err
	}
	if lost := s.w.returns(f); lost != nil {
		return nil, false, lost
	}
	s.w.offered(list)
	return list, all, err
}

// End implements [outbox.Store].
func (s *store) Ack(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
	w := s.w
	w.at.node.pass.acked(ctx, endings)
	f := w.reaches()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch f {
	case losesRequest:
		return nil, w.gives()
	case comesLate:
		w.later(w.soon(), func() { s.end(endings) })
		return nil, w.gives()
	default:
	}
	ended := s.end(endings)
	if f == comesTwice {
		ended = s.end(endings)
	}
	if lost := w.returns(f); lost != nil {
		return nil, lost
	}
	return ended, nil
}

func (s *store) end(endings []outbox.Ack) []outbox.AckResult {
	w := s.w
	all := make([]outbox.AckResult, len(endings))
	box := w.mem.Outbox()
	for i := range endings {
		e := &endings[i]
		if e.Settle != nil && w.holder(e.Settle.Ref) != nil { // the memstore would block, and no other actor would run
			all[i].Err = retrysafe.ErrBusy
			continue
		}
		before, _ := box.Depth(outside)
		ended, err := box.Ack(outside, endings[i:i+1])
		if err != nil {
			all[i].Err = err
			continue
		}
		all[i] = ended[0]
		after, _ := box.Depth(outside)
		if w.traces {
			w.tracef("end message %d, fate %d → %v", e.ID, e.Kind, all[i].Err)
		}
		if all[i].Err != nil || before == after && e.Kind != outbox.AckRetry {
			continue
		}
		if e.Settle != nil {
			w.slot(e.Settle.Ref).wrote(w, e.Settle, &all[i].Record)
		}
		if e.Kind == outbox.AckDead {
			w.happens(messageDead)
		}
		if e.Kind == outbox.AckDelivered {
			w.delivered++
		}
	}
	return all
}

// Dead implements [outbox.Store].
func (s *store) DeadLetters(_ context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	return s.w.mem.Outbox().DeadLetters(outside, after, limit)
}

// Dispose implements [outbox.Store].
func (s *store) Dispose(_ context.Context, d outbox.Disposal) error {
	return s.w.mem.Outbox().Dispose(outside, d)
}
