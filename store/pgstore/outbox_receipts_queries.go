package pgstore

import (
	"fmt"
	"strings"
)

// The parts of an end that leave receipts, and the statements on receipts.

const (
	// receiptColumns are the columns that [arrays.receipts] writes.
	receiptColumns = `keep, key_id, topic, key, scope, settled, kept_ref`

	// keepReceipts stores receipts of the messages that {gone} has deleted. It is a part
	// of the statement that deletes them, so each message has one or is still there. A
	// name of the effect that an earlier try has brought is kept, if the last has none.
	keepReceipts = `,
kept AS (INSERT INTO {receipts} (id, delivered, expires, key_id, topic, key, scope, settled, provider_ref)
SELECT id, {now}, {now} + keep, key_id, topic, key, scope, settled, CASE WHEN kept_ref = '' THEN provider_ref ELSE kept_ref END FROM gone WHERE keep > 0
    ON CONFLICT (id) DO NOTHING)`

	selectReceipts = `
-- Reads receipts. One snapshot.
SELECT r.id, r.delivered, r.expires, r.topic, r.key, r.scope, r.settled, r.provider_ref FROM {from} r
 WHERE r.expires > {now} AND r.id > $1 ORDER BY r.id LIMIT $2`

	// OFFSET 0 keeps the server from reading all receipts in the order of their ids.
	receiptsOfKey = `(SELECT * FROM {receipts} WHERE key_id = $3 AND key_id <> ` + noKey + ` AND ($4 = '' OR provider_ref = $4) OFFSET 0)`
	receiptsOfRef = `(SELECT * FROM {receipts} WHERE provider_ref = $3 AND provider_ref <> '' OFFSET 0)`

	// noKey is the id of no key, as the index of receipts says it.
	noKey = `'00000000-0000-0000-0000-000000000000'`

	deleteReceipts = `
-- Deletes the receipts of a key.
DELETE FROM {receipts} WHERE key_id = $1 AND key_id <> ` + noKey

	purgeReceipts = `
-- Deletes receipts that have expired. The rows are locked before they are deleted; locked
-- rows are left for the next time.
DELETE FROM {receipts} WHERE ctid = ANY (ARRAY(
       SELECT r.ctid FROM {receipts} r WHERE r.expires <= {now} ORDER BY r.expires LIMIT $1 FOR UPDATE SKIP LOCKED))`
)

// receiptArrays are the parameters of [arrays.receipts], from number first on, as
// arguments of unnest.
func receiptArrays(first int) string {
	types := []string{"bigint", "uuid", "bytea", "bytea", "bytea", "bytea", "bytea"}
	var b strings.Builder
	for i, name := range types {
		fmt.Fprintf(&b, ", $%d::%s[]", first+i, name)
	}
	return b.String()
}

// withReceipts fills in the places of a template that ends messages: with receipts, whose
// parameters are those from number first on, or without.
func withReceipts(template string, first int) string {
	if first == 0 {
		return variant(template, "{receipt arrays}", "", "{receipt columns}", "", "{receipts of e}", "", "{receipts of g}", "", "{kept}", "")
	}
	of := func(alias string) string {
		return ", " + alias + "." + strings.ReplaceAll(receiptColumns, ", ", ", "+alias+".")
	}
	return variant(template, "{receipt arrays}", receiptArrays(first), "{receipt columns}", ", "+receiptColumns,
		"{receipts of e}", " RETURNING m.id, m.provider_ref"+of("e"), "{receipts of g}", of("g"), "{kept}", keepReceipts)
}
