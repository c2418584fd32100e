package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/retrysafe/retrysafe"
)

// order is a caller's request.
type order struct {
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	AccountID int64  `json:"account_id"`
}

// effect is a row of a business table, as callers see it.
type effect struct {
	ID   string `json:"id"`
	Kind string `json:"object"`
	order
	Status string `json:"status"`
	Charge string `json:"charge,omitempty"` // the provider's id
}

// The statuses of an effect.
const (
	pending   = "pending"
	succeeded = "succeeded"
	declined  = "declined"
)

// The kinds of effects, each with a table of its own.
const (
	payment  = "payment"
	transfer = "transfer"
	charge   = "charge"
)

var kinds = []string{payment, transfer, charge}

func newID(prefix string) string { return prefix + "_" + rand.Text() }

func (e *effect) location() string { return "/" + e.Kind + "s/" + e.ID }

// created is the answer for a new effect.
func (e *effect) created() retrysafe.Result {
	return answer(http.StatusCreated, e, e.location())
}

// execer is a database, or a transaction of it.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

const columns = "id, amount, currency, account_id, status, charge"

// insert inserts an effect.
func insert(ctx context.Context, db execer, under retrysafe.Ref, e *effect) error {
	return e.insert(ctx, db, under, "")
}

// insertOnce inserts an effect unless an earlier attempt has inserted it.
func insertOnce(ctx context.Context, db execer, under retrysafe.Ref, e *effect) error {
	return e.insert(ctx, db, under, ` ON CONFLICT (id) DO NOTHING`)
}

func (e *effect) insert(ctx context.Context, db execer, under retrysafe.Ref, otherwise string) error {
	_, err := db.ExecContext(ctx, `INSERT INTO `+e.Kind+`s (`+columns+`, tenant, under) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`+otherwise,
		e.ID, e.Amount, e.Currency, e.AccountID, e.Status, e.Charge, under.Scope, under.Key)
	if err != nil {
		return fmt.Errorf("insert %s: %w", e.Kind, err)
	}
	return nil
}

var errNotFound = errors.New("there is no such row")

// find returns an effect of the tenant's.
func (d *database) find(ctx context.Context, tenant, kind, id string) (*effect, error) {
	found, err := d.list(ctx, kind, `tenant = $1 AND id = $2`, tenant, id)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, errNotFound
	}
	return &found[0], nil
}

// ledger lists the effects of one of a tenant's keys.
func (d *database) ledger(ctx context.Context, of retrysafe.Ref) ([]effect, error) {
	all := []effect{}
	for _, kind := range kinds {
		found, err := d.list(ctx, kind, `tenant = $1 AND under = $2`, of.Scope, of.Key)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (d *database) list(ctx context.Context, kind, where string, args ...any) ([]effect, error) {
	rows, err := d.QueryContext(ctx, `SELECT `+columns+` FROM `+kind+`s WHERE `+where+` ORDER BY id`, args...)
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	defer rows.Close()
	var found []effect
	for rows.Next() {
		e := effect{Kind: kind}
		if err := rows.Scan(&e.ID, &e.Amount, &e.Currency, &e.AccountID, &e.Status, &e.Charge); err != nil {
			return nil, fmt.Errorf("list %ss: %w", kind, err)
		}
		found = append(found, e)
	}
	return found, rows.Err()
}

var errOther = errors.New("another result is already stored")

// settle stores the provider's answer to a transfer. It may be called twice, with the
// same answer.
func (d *database) settle(ctx context.Context, tenant, id, status, charge string) (*effect, error) {
	if _, err := d.ExecContext(ctx, `UPDATE transfers SET status = $1, charge = $2 WHERE id = $3 AND tenant = $4 AND status = $5`,
		status, charge, id, tenant, pending); err != nil {
		return nil, fmt.Errorf("settle transfer: %w", err)
	}
	row, err := d.find(ctx, tenant, transfer, id)
	if err == nil && (row.Status != status || row.Charge != charge) {
		err = fmt.Errorf("transfer %s is %s by charge %q, and now %s by %q: %w", id, row.Status, row.Charge, status, charge, errOther)
	}
	return row, err
}
