package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// A receiptTable says whether the outbox keeps receipts. The table may be missing where
// another program migrates the schema.
type receiptTable struct {
	there  bool
	usable bool // the role may use it
}

var errNoReceipts = fmt.Errorf("pgstore: the table of receipts is not there; run the migrations: %w", errors.ErrUnsupported)

// check returns nil if the table can be used.
func (b *Outbox) checkReceipts() error {
	switch {
	case !b.receipts.there:
		return errNoReceipts
	case !b.receipts.usable:
		return fmt.Errorf("pgstore: this role may not use the table of receipts; let its owner GRANT SELECT, INSERT, UPDATE, DELETE ON %s: %w",
			qualified(b.s.schema, "retrysafe_receipts"), errors.ErrUnsupported)
	}
	return nil
}

// Receipts implements [outbox.ReceiptKeeper].
func (b *Outbox) Receipts(ctx context.Context, q outbox.ReceiptQuery) (list []outbox.KeptReceipt, err error) {
	if err := b.checkReceipts(); err != nil || q.Limit <= 0 {
		return nil, err
	}
	stmt, params := &b.sql.receipts, [][]byte{int8Param(q.After), int8Param(int64(q.Limit))}
	switch {
	case q.Settled != (retrysafe.Ref{}):
		key := idOf(q.Settled)
		stmt, params = &b.sql.receiptsOfKey, append(params, key[:], []byte(q.ProviderRef))
	case q.ProviderRef != "":
		stmt, params = &b.sql.receiptsOfRef, append(params, []byte(q.ProviderRef))
	}
	err = b.doForOperator(ctx, "read receipts", query{statement: stmt, params: params, each: func(v [][]byte) error {
		list = append(list, outbox.KeptReceipt{
			ID: int8At(v[0]), Delivered: fromMicros(int8At(v[1])), Expires: fromMicros(int8At(v[2])),
			Topic: string(v[3]), Key: string(v[4]), Settled: retrysafe.Ref{Scope: string(v[5]), Key: string(v[6])}, ProviderRef: string(v[7]),
		})
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// ForgetReceipts implements [outbox.ReceiptKeeper].
func (b *Outbox) ForgetReceipts(ctx context.Context, settled retrysafe.Ref) error {
	switch err := b.checkReceipts(); {
	case !b.receipts.there:
		return nil
	case err != nil:
		return err
	}
	key := idOf(settled)
	return b.doForOperator(ctx, "forget receipts", query{statement: &b.sql.forgetReceipts, params: [][]byte{key[:]}})
}

// purgeReceipts deletes receipts that have expired, at most limit.
func (s *Store) purgeReceipts(ctx context.Context, limit int) (deleted int, err error) {
	if !s.outbox.receipts.usable {
		return 0, nil // without the table there are none; without the right another role deletes them
	}
	for more := true; more && deleted < limit; {
		batch, start, n := int64(min(limit-deleted, purgeBatch)), time.Now(), int64(0)
		if err := s.background.do(ctx, query{statement: &s.outbox.sql.purgeReceipts, params: [][]byte{int8Param(batch)}, count: &n}); err != nil {
			return deleted, err
		}
		deleted += int(n)
		if more = n == batch && deleted < limit; more {
			pause(ctx, time.Since(start))
		}
	}
	return deleted, nil
}

// keeps reports whether any of the endings leaves a receipt.
func (b *Outbox) keeps(n int, at func(n int) *outbox.Ack) bool {
	if !b.receipts.usable {
		return false
	}
	for i := range n {
		if keepOf(at(i)) > 0 {
			return true
		}
	}
	return false
}

// keepOf is how long the receipt of an ending is kept. Zero: there is none.
func keepOf(e *outbox.Ack) time.Duration {
	if e.Kind != outbox.AckDelivered || e.Message == nil {
		return 0
	}
	return max(e.Keep, 0)
}

// receiptTypes are the types of the arrays that receipts writes.
var receiptTypes = []uint32{oidInt8s, oidUUIDs, oidByteas, oidByteas, oidByteas, oidByteas, oidByteas}

// receipts writes the receipts of n endings as arrays. An ending without a receipt is kept
// for no time.
func (a *arrays) receipts(n int, at func(n int) *outbox.Ack) {
	a.reset(n)
	column := func(elem uint32, add func(e *outbox.Ack, kept bool)) {
		a.column(elem)
		for i := range n {
			e := at(i)
			add(e, keepOf(e) > 0)
		}
		a.end()
	}
	text := func(value func(e *outbox.Ack) string) {
		column(oidBytea, func(e *outbox.Ack, kept bool) {
			a.bytes(func(b []byte) []byte {
				if !kept {
					return b
				}
				return append(b, value(e)...)
			})
		})
	}
	settled := func(e *outbox.Ack) (ref retrysafe.Ref) {
		if e.Message.Settles != nil {
			ref = e.Message.Settles.Ref
		}
		return ref
	}
	column(oidInt8, func(e *outbox.Ack, _ bool) { a.int8(keepOf(e).Microseconds()) })
	column(oidUUID, func(e *outbox.Ack, kept bool) {
		var key id
		if kept && e.Message.Settles != nil {
			key = idOf(e.Message.Settles.Ref)
		}
		a.uuid(key)
	})
	text(func(e *outbox.Ack) string { return e.Message.Topic })
	text(func(e *outbox.Ack) string { return e.Message.Key })
	text(func(e *outbox.Ack) string { return settled(e).Scope })
	text(func(e *outbox.Ack) string { return settled(e).Key })
	text(func(e *outbox.Ack) string { return e.ProviderRef })
}
