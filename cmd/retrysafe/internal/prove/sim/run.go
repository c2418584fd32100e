package sim

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// slowest is how long what is due may wait for a janitor in a world that is calm.
const slowest = 7 * time.Minute

// schedule runs one schedule from beginning to end. What it leaves to chance is
// decided before: by a seed, or by a list of decisions.
func (w *world) schedule() {
	w.reset()
	w.draws()
	w.populate()
	w.run(w.heals)
	w.heal()
	w.run(w.ends)
	w.judge()
	w.finish()
}

// reset makes the world new, but for what is worth keeping.
func (w *world) reset() {
	w.now, w.at, w.used = 0, nil, 0
	w.pending, w.txs = w.pending[:0], w.txs[:0]
	w.slots, w.messages = w.slots[:0], w.messages[:0]
	w.calm, w.closes, w.over, w.steps = false, false, false, 0
	w.skew, w.latest, w.down = 0, time.Time{}, 0
	w.owners, w.serial, w.delivered = 0, 0, 0
	w.jumped, w.holding = false, 0
	w.broken, w.hash, w.trace = nil, 0, nil
	w.store.w = w
	w.newStore()
}

// keyNames are the keys of a world. The first two differ by their scope only.
var keyNames = []retrysafe.Ref{{Scope: "a", Key: "1"}, {Scope: "b", Key: "1"}, {Scope: "b", Key: "2"}}

// populate makes the world's keys, nodes and clients, and schedules its faults.
func (w *world) populate() {
	if w.plant == shortMemory {
		w.policy.Retention, w.remembers = 20*time.Second, 24*time.Hour
	}
	keys := 1 + max(0, w.draw(5)-2) // mostly one: that is where they meet
	if w.plant == oneScope {
		keys = 2
	}
	for _, ref := range append(keyNames[:keys:keys], awaitedKey) {
		w.slots = append(w.slots, slot{name: ref.Scope + "/" + ref.Key, ref: ref, gone: true})
	}
	if w.draw(16) == 15 {
		w.alien(&w.slots[keys-1])
	}
	for i := range w.nodeCount {
		n := &w.nodes[i]
		*n = node{w: w, name: nodeNames[i]}
		n.boot()
	}
	spread := [...]int{90_000, 5_000, 300_000}[w.draw(3)]
	for i := range 2 + w.draw(maxClients-1) {
		c := &client{w: w, slot: &w.slots[w.draw(keys)], print: 1, tries: 2 + w.draw(6)}
		if w.draw(8) == 7 {
			c.print = 2
		}
		w.spawn(clientNames[i], nil, time.Duration(w.draw(spread))*time.Millisecond, c.live)
	}
	for range 2 {
		if w.hit(w.rates.jumps) {
			w.later(time.Duration(w.draw(300))*time.Second, w.jump)
		}
		if w.hit(w.rates.restarts) {
			w.later(time.Duration(w.draw(300_000))*time.Millisecond, w.restart)
		}
	}
}

var clientNames = [maxClients + 1]string{"client 1", "client 2", "client 3", "client 4", "client 5", "last client"}

// alien stores a record that a newer version has written. It must never be changed.
func (w *world) alien(s *slot) {
	got, err := w.mem.Create(outside, retrysafe.Write{Term: 10 * time.Second, Record: retrysafe.Record{
		Ref: s.ref, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion + 1,
		Owner: retrysafe.Owner{2}, Attempt: 1, Retain: time.Hour,
		Lapse: retrysafe.LapseRerun, Effects: retrysafe.EffectsKeyed, Fingerprint: (&client{print: 1}).fingerprint(),
	}})
	if err == nil {
		s.rec, s.gone, s.highest = got, false, got.Revision
	}
}

// jump sets a clock: that of the store, or that of a node.
func (w *world) jump() {
	if w.calm || w.over {
		return
	}
	w.happens(clockJumped)
	w.jumped = true
	if w.draw(2) == 0 {
		w.skew += time.Duration(w.draw(240)-60) * time.Second
		w.tracef("the store's clock is %v off", w.skew)
		return
	}
	n := &w.nodes[w.draw(w.nodeCount)]
	n.offset += time.Duration(w.draw(60)-15) * time.Second
	w.tracef("the clock of %s is %v off", n.name, n.offset)
}

// restart is a crash of the store's server. Its transactions are gone at once, and so
// are the reservations that were allowed to be lost; in a while it is back.
func (w *world) restart() {
	if w.calm || w.over {
		return
	}
	w.happens(serverCrashed)
	w.down = w.now + time.Duration(w.draw(20_000))*time.Millisecond
	for len(w.txs) > 0 {
		t := w.txs[0]
		t.broken = true
		_ = t.end(false)
	}
	forgotten := w.mem.Crash()
	w.tracef("the store's server crashes, with %d steps that were not durable, and is back at %v", forgotten, w.down)
	for i := range w.slots {
		w.slots[i].crashed(w)
	}
}

// heal ends all faults. What was on its way still arrives.
func (w *world) heal() {
	if w.broken != nil {
		return
	}
	w.calm = true
	w.tracef("nothing goes wrong any more")
	for i := range w.nodeCount {
		w.nodes[i].frozen = 0
	}
}

// judge holds what must be true in the end, and asks for every key once more.
func (w *world) judge() {
	for i := range w.slots {
		s := &w.slots[i]
		if w.broken != nil {
			return
		}
		if s.gone || s.rec.Version > retrysafe.RecordVersion {
			continue
		}
		if late := w.clock().Sub(s.rec.Deadline); late > slowest {
			w.overdue(s, late)
		}
		w.consistent(s)
		c := &client{w: w, slot: s, print: s.rec.Fingerprint.Sum[0]}
		w.spawn(clientNames[maxClients], nil, time.Duration(i)*time.Second, c.last)
	}
	w.run(w.ends + 30*time.Second)
	w.awaits()
	w.outboxKept()
	w.still()
}

// overdue checks that a janitor has handled what was due so long ago: a lapsed attempt
// is swept, and the resolver is asked about an unknown outcome. S13 bounds how often,
// so each outcome is known in the end or a dead letter.
func (w *world) overdue(s *slot, late time.Duration) {
	invariant := "L1"
	switch r := &s.rec; {
	case r.State == retrysafe.StateUnknown && !r.Inquiry.Dead:
		invariant = "L2"
	case r.State != retrysafe.StateInProgress && r.State != retrysafe.StateAccepted:
		return
	}
	w.violate(invariant, s, "%v after the last fault the key is %s, attempt %d, and was due %v ago", w.ends-w.heals, s.rec.State, s.rec.Attempt, late)
}

// last asks for a key in a world in which nothing goes wrong: whatever is stored is
// what it gets.
func (c *client) last() {
	w, s := c.w, c.slot
	was := s.rec
	w.clock() // so that latest is
	answered := was.State == retrysafe.StateCompleted && w.latest.Add(time.Minute).Before(was.Deadline)
	n := &w.nodes[0]
	out, err := c.call(outside, n)
	if w.over {
		return
	}
	switch {
	case answered && (err != nil || !out.Result.Equal(was.Result)):
		w.violate("S4", s, "the answer %q is stored, and in the end a client gets %q, %v", was.Result.Body, out.Body, err)
	case err == nil:
		c.shown(&out)
	default:
		c.refused(err)
	}
}

// consistent holds the record against what has really happened.
func (w *world) consistent(s *slot) {
	made := s.made(s.gen, true)
	if w.policy.Effects != retrysafe.EffectsInTx || w.way == byMessage || w.plant != none {
		return
	}
	ours := s.rec.State == retrysafe.StateCompleted && s.rec.Result.Status == 201
	switch {
	case ours && made != 1:
		w.violate("S1", s, "the answer says that the operation ran, and %d effects are committed", made)
	case !ours && made != 0 && w.way != byPhaseTx && s.rec.State != retrysafe.StateExpired:
		w.violate("S1", s, "the key is %s, and %d effects are committed", s.rec.State, made)
	}
}

// outboxKept holds that no message was dropped.
func (w *world) outboxKept() {
	if w.way != byMessage || w.broken != nil {
		return
	}
	depth, err := w.mem.Outbox().Depth(outside)
	if err != nil || depth.Waiting+depth.Dead+w.delivered != len(w.messages) {
		w.violate("S11", nil, "%d messages were committed; %d were delivered, %d wait, %d are dead letters", len(w.messages), w.delivered, depth.Waiting, depth.Dead)
	}
	for i := range w.messages {
		if m := &w.messages[i]; m.sent == 0 && depth.Waiting+depth.Dead == 0 {
			w.violate("S11", &w.slots[m.slot], "a message has ended and was never sent")
		}
	}
}
