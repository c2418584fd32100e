package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A pendingAck is the acknowledgement of a delivery that the store has not confirmed
// yet.
type pendingAck struct {
	delivery *Delivery
	receipt  Receipt
	ack      Ack
}

func acksOf(pending []*pendingAck) []Ack {
	list := make([]Ack, len(pending))
	for i := range pending {
		list[i] = pending[i].ack
	}
	return list
}

// ackFor returns the acknowledgement of a delivery whose receipt is r.
func ackFor(opts *Options, d *Delivery, r *Receipt) Ack {
	tries := d.Tries + 1
	ack := Ack{ID: d.ID, Shard: d.Shard, Group: d.Group, Tries: tries, ProviderRef: r.ProviderRef}
	switch {
	case r.Err == nil:
		ack.Kind = AckDelivered
		if opts.KeepReceipts > 0 {
			ack.Keep, ack.Message = opts.KeepReceipts, &d.Message
		}
	case IsPermanent(r.Err), tries >= opts.MaxTries, d.Age >= opts.Horizon:
		ack.Kind, ack.Why = AckDead, r.Err.Error()
	default:
		ack.Kind, ack.Why = AckRetry, r.Err.Error()
		// If the receiver asks for more time than the horizon leaves, the last try decides.
		ack.After = min(opts.Backoff.after(tries, r.After, opts.Rand()), opts.Horizon-d.Age)
	}
	if d.Settles != nil && ack.Kind != AckRetry {
		ack.Settle = settled(*d.Settles, &ack, r)
	}
	return ack
}

// finishAcks takes in what the store has said to acknowledgements. If its reply was lost
// they are stored again, which changes nothing if they are stored already, but for the
// time at which an AckRetry is due.
func (l *loop) finishAcks(a *ackAction, now time.Time) {
	l.storing = 0
	if a.err != nil {
		l.failed("acknowledge", a.err)
		l.rest = min(max(l.rest*2, ackRest), slowest)
		l.ackAt = now.Add(l.rest)
		l.retry(a.acks, a.err, now)
		return
	}
	l.rest = 0
	var again []*pendingAck
	var cause error
	for i, p := range a.acks {
		if !l.finishAck(p, &a.results[i]) {
			again, cause = append(again, p), a.results[i].Err
		}
		if errors.Is(a.results[i].Err, retrysafe.ErrBusy) { // a transaction has the key; its end is waited for
			l.ackAt = now.Add(ackRest)
		}
	}
	l.retry(again, cause, now)
}

// retry stores acknowledgements again, as long as their shards are held. Beyond that the
// messages are sent again, by this worker or another.
func (l *loop) retry(again []*pendingAck, cause error, now time.Time) {
	held := again[:0]
	for _, p := range again {
		if now.Before(l.until) && l.inflight.holds(p.delivery.Shard) {
			held = append(held, p)
		} else {
			l.inflight.drop(p.delivery)
		}
	}
	if lost := len(again) - len(held); lost > 0 {
		l.err = fmt.Errorf("outbox: store acknowledgements before the lease ends: %w", cause)
		l.opts.Logger.Error("outbox: acknowledgements could not be stored while their shards were held; the messages are sent again", "messages", lost, "error", cause)
	}
	if len(held) > 0 {
		l.acks = append(held, l.acks...)
	}
}

// finishAck takes in what the store has said to one acknowledgement, and reports whether
// that is the end of it. Otherwise it is to be stored again, as it is now.
func (l *loop) finishAck(p *pendingAck, result *AckResult) (done bool) {
	switch err := result.Err; {
	case err == nil:
		l.confirmed(p)
	case errors.Is(err, ErrFenced):
		l.stats.fenced.Add(1)
		l.inflight.drop(p.delivery)
	case errors.Is(err, retrysafe.ErrConflict) && p.ack.Settle != nil:
		p.ack.Settle = resettled(result.Record, &p.ack, &p.receipt)
		return false
	case errors.Is(err, retrysafe.ErrBusy):
		return false
	case p.ack.Settle != nil && (errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable)):
		l.opts.Logger.Error("outbox: the key of a message cannot be settled; the message ends without it", "message", p.delivery.ID, "error", err)
		p.ack.Settle = nil
		return false
	default:
		l.opts.Logger.Error("outbox: a message cannot be acknowledged; it is sent again", "message", p.delivery.ID, "error", err)
		l.inflight.drop(p.delivery)
	}
	return true
}

// confirmed takes in that the store has an acknowledgement.
func (l *loop) confirmed(p *pendingAck) {
	d := p.delivery
	switch p.ack.Kind {
	case AckDelivered:
		l.stats.delivered.Add(1)
		l.inflight.remove(d.ID)
	case AckRetry:
		l.stats.again.Add(1)
		l.inflight.drop(d)
	case AckDead:
		l.stats.buried.Add(1)
		l.opts.Logger.Error("outbox: a message is a dead letter", "message", d.ID, "topic", d.Topic, "tries", d.Tries+1, "error", p.ack.Why)
		l.inflight.remove(d.ID)
		l.inflight.advance(d)
	}
}
