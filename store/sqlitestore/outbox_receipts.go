package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

var errNoReceipts = fmt.Errorf("sqlitestore: the table of receipts is not there; run the migrations: %w", errors.ErrUnsupported)

// The statements on receipts.
const (
	countReceiptTables = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'retrysafe_receipts'`

	// A name of the effect that an earlier try has brought is kept, if the last has none.
	keepReceipt = `INSERT OR REPLACE INTO retrysafe_receipts (id, delivered, expires, key_id, topic, key, scope, settled, provider_ref)
		SELECT id, ?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce(nullif(?8, ''), provider_ref) FROM retrysafe_outbox WHERE id = ?9`

	selectReceipts = `SELECT id, delivered, expires, topic, key, scope, settled, provider_ref FROM retrysafe_receipts`

	selectAllReceipts   = selectReceipts + ` WHERE expires > ? AND id > ? ORDER BY id LIMIT ?`
	selectReceiptsOfRef = selectReceipts + ` INDEXED BY retrysafe_receipts_ref WHERE provider_ref = ?4 AND provider_ref <> '' AND expires > ?1 AND id > ?2 ORDER BY id LIMIT ?3`
	selectReceiptsOfKey = selectReceipts + ` INDEXED BY retrysafe_receipts_key WHERE key_id = ?4 AND key_id <> x'' AND (?5 = '' OR provider_ref = ?5)
		AND expires > ?1 AND id > ?2 ORDER BY id LIMIT ?3`

	deleteReceipts = `DELETE FROM retrysafe_receipts INDEXED BY retrysafe_receipts_key WHERE key_id = ? AND key_id <> x''`

	existsExpired = `SELECT EXISTS (SELECT 1 FROM retrysafe_receipts WHERE expires <= ?)`

	deleteExpired = `DELETE FROM retrysafe_receipts WHERE id IN (SELECT id FROM retrysafe_receipts WHERE expires <= ? ORDER BY expires LIMIT ?)`
)

// findReceipts finds out whether the file has the table of receipts. It may be missing
// where another program migrates the schema.
func (s *Store) findReceipts(ctx context.Context) error {
	var n int
	if err := s.db.QueryRowContext(ctx, countReceiptTables).Scan(&n); err != nil {
		return fmt.Errorf("sqlitestore: %w", s.explain(ctx, err))
	}
	s.box.keeps = n == 1
	return nil
}

// Receipts implements [outbox.ReceiptKeeper].
func (b *Outbox) Receipts(ctx context.Context, q outbox.ReceiptQuery) (list []outbox.KeptReceipt, err error) {
	switch {
	case !b.keeps:
		return nil, errNoReceipts
	case q.Limit <= 0:
		return nil, nil
	}
	query, args := selectAllReceipts, []any{b.s.now().UnixMicro(), q.After, q.Limit}
	switch {
	case q.Settled != (retrysafe.Ref{}):
		query, args = selectReceiptsOfKey, append(args, idOf(q.Settled), q.ProviderRef)
	case q.ProviderRef != "":
		query, args = selectReceiptsOfRef, append(args, q.ProviderRef)
	}
	err = b.read(ctx, query, args, func(rows *sql.Rows) (bool, error) {
		var r outbox.KeptReceipt
		var delivered, expires int64
		if err := rows.Scan(&r.ID, &delivered, &expires, &r.Topic, &r.Key, &r.Settled.Scope, &r.Settled.Key, &r.ProviderRef); err != nil {
			return false, err
		}
		r.Delivered, r.Expires = time.UnixMicro(delivered).UTC(), time.UnixMicro(expires).UTC()
		list = append(list, r)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read receipts: %w", err)
	}
	return list, nil
}

// ForgetReceipts implements [outbox.ReceiptKeeper].
func (b *Outbox) ForgetReceipts(ctx context.Context, settled retrysafe.Ref) error {
	if !b.keeps {
		return nil
	}
	return b.write(ctx, "forget receipts", func(ctx context.Context, tx execer) error {
		_, err := tx.ExecContext(ctx, deleteReceipts, idOf(settled))
		return err
	})
}

// keep stores the receipt of a delivered message, before the message is deleted in the
// same transaction, if the worker asks for one.
func (e *ends) keep(ctx context.Context, it *outbox.Ack, now time.Time) error {
	if !e.s.box.keeps || it.Keep <= 0 || it.Message == nil {
		return nil
	}
	var settled retrysafe.Ref
	id := []byte{}
	if it.Message.Settles != nil {
		settled = it.Message.Settles.Ref
		id = idOf(settled)
	}
	return exec(ctx, e.tx, 1, keepReceipt, now.UnixMicro(), now.Add(it.Keep).UnixMicro(), id,
		it.Message.Topic, it.Message.Key, settled.Scope, settled.Key, it.ProviderRef, it.ID)
}

// purgeReceipts deletes receipts that have expired, at most limit.
func (s *Store) purgeReceipts(ctx context.Context, own *session, limit int) (deleted int, err error) {
	if !s.box.keeps {
		return 0, nil
	}
	now := s.now().UnixMicro()
	for deleted < limit {
		some := false
		if err := s.db.QueryRowContext(ctx, existsExpired, now).Scan(&some); err != nil || !some {
			return deleted, err
		}
		n, err := s.purgeSomeReceipts(ctx, own, now, min(limit-deleted, purgeBatch))
		if deleted += n; err != nil || n == 0 {
			return deleted, err
		}
	}
	return deleted, nil
}

func (s *Store) purgeSomeReceipts(ctx context.Context, own *session, now int64, limit int) (deleted int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err = own.tx(ctx, "BEGIN IMMEDIATE", func(ctx context.Context, tx execer) error {
		res, err := tx.ExecContext(ctx, deleteExpired, now, limit)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		deleted = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
