package pgstore

import (
	"slices"
	"strconv"
	"strings"
)

// A statement is SQL with the types of its parameters. testdata/statements.sql shows
// all of them as they are sent.
type statement struct {
	name string
	sql  string
	oids []uint32
	// why is the comment above the SQL in its template: what the statement's atomicity
	// rests on. It is for readers; the server does not get it.
	why string
}

// A definition makes one statement out of a template.
//
// A template is SQL with placeholders in braces. Each use of "variant" fills in those
// in which the variants of one template differ. The others have the same meaning in
// every template: see fragments and tableNames. The lines that begin with "--" before
// the SQL say why the statement is atomic.
type definition struct {
	into     *statement
	name     string
	template string
	oids     []uint32
}

// define makes statements out of their definitions. Prefix begins each name.
func define(prefix string, names *strings.Replacer, all []definition) {
	for _, d := range all {
		*d.into = newStatement(prefix+d.name, d.template, names, d.oids)
	}
}

func newStatement(name, template string, names *strings.Replacer, oids []uint32) statement {
	why, sql := cutComment(template)
	return statement{name: name, sql: names.Replace(expand(sql)), oids: oids, why: why}
}

// cutComment separates a template from the comment above it.
func cutComment(template string) (comment, sql string) {
	sql = strings.TrimPrefix(template, "\n")
	for strings.HasPrefix(sql, "--") {
		end := strings.IndexByte(sql, '\n') + 1
		comment, sql = comment+sql[:end], sql[end:]
	}
	return comment, sql
}

// variant fills in placeholders of a template.
func variant(template string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(template)
}

// expand fills in fragments, which may hold others.
func expand(template string) string {
	for {
		next := fragments.Replace(template)
		if next == template {
			return next
		}
		template = next
	}
}

// fragments are parts of several statements, by their placeholders.
var fragments = strings.NewReplacer(
	// The database's clock in microseconds, at the beginning of the statement and not of
	// the transaction. It is exact: as a floating-point number the time is precise to a
	// quarter of a microsecond. Numerics would be slower by more than the rest of a step.
	"{micros}", `(date_part('epoch', statement_timestamp()) * 1000000)::bigint`,
	// The same, evaluated once for a statement.
	"{now}", `(SELECT {micros})`,
	// The same in the seconds of column due.
	"{seconds}", `({now} / 1000000 - 1600000000)`,

	// When the transaction began.
	"{since}", `(date_part('epoch', transaction_timestamp()) * 1000000)::bigint`,

	// The columns that scanRow reads.
	"{columns}", `k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, {now}`,
	// The same for row.scan, in types that every driver can read.
	"{plain columns}", `uuid_send(k.id), uuid_send(k.owner), k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, {now}`,

	// For how long the deadline of a row was written: a revision is the time of its write.
	// One that is above the deadline was ahead of the clock already when it was written, by
	// an earlier change of the clock; then it says nothing, and the row gets six hours.
	"{written for}", `CASE WHEN k.deadline > k.revision THEN k.deadline - k.revision ELSE 21600000000 END`,

	"{accepted}", strconv.Itoa(bucketAccepted),
	"{unknown}", strconv.Itoa(bucketUnknown),
	"{slot of m}", slotOf("m.state", "m.id", "m.term", "c.now"),
	"{slot of u}", slotOf("u.state", "u.id", "u.term", "c.now"),
	"{hash slot}", hashSlotOf("k.id"),

	// A settlement leaves the row in the slot where its reservation put it, if that is
	// about right. A heartbeat does too, unless it cuts the lease short.
	"{rebucket}", `(u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300)))`,

	// Makes the commit of the transaction wait for the disk, and for the standby if
	// there is one.
	"{durable}", `CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', true) END`,
	// Lets warnings through, if the session suppresses them. A setting that is made for a
	// transaction costs time at its end, so it is made only where it is needed.
	"{with warnings}", `CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END`,
)

// slotOf is the slot of a row in its bucket, the value of column due: the second in
// which the lease ends, or the hash slot of an accepted row. A final row has the slot
// of a lease that ends now.
func slotOf(state, id, term, now string) string {
	return `CASE WHEN ` + state + ` = 1 THEN ` + hashSlotOf(id) + `
            ELSE least((` + now + ` + CASE WHEN ` + state + ` IN (3, 4, 6) THEN 0 ELSE ` + term + ` END) / 1000000 - 1600000000, 2147483647)::int END`
}

// hashSlotOf is the last four bytes of an id as a number: [id.hashSlot].
func hashSlotOf(id string) string {
	return `(('x' || right(` + id + `::text, 8))::bit(32)::bigint - 2147483648)::int`
}

// tableNames fills in the names of a schema, and more. {table} is a number of the
// table's own: the same key in two schemas is two keys, with two advisory locks.
func tableNames(schema string, more ...string) *strings.Replacer {
	keys := tableIn(schema)
	return strings.NewReplacer(append(slices.Concat(more, outboxTables(schema), changeTables(schema)), "{keys}", keys, "{step}", qualified(schema, "retrysafe_step"),
		"{table}", literal(keys)+"::regclass::oid::bigint")...)
}

// statements are the store's SQL on keys, for one schema.
type statements struct {
	reserve, reserveOne, reserveNew                  statement
	insert, insertUnlocked                           statement
	others, read                                     statement
	settle, settleOne                                statement
	update, updateUnlocked                           statement
	retentions, list, listDue, listOpen, listBuckets statement
	watermark, rebucketRenewed                       statement
	partOfSlots, shorten                             statement
	purge, rebucketSettled, confirm, countScope      statement
	announce, lastChange, changes                    statement
	begin, lockOwn, readOne                          statement // in a transaction of the store's
	beginDefault, take, settings                     statement
	putOne, putHeld, putFinal                        statement
	since, sameSince, commit, rollback               statement
	tx                                               txStatements
}

// txStatements are for transactions of the caller's. They go through the caller's
// driver, which prepares them or does not.
type txStatements struct{ lock, read, insert, swap statement }

// The members of a batch, as the table u: rows of an array of steps, a row for each
// element of the arrays, or one row.
const (
	reserveArrays = `unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[], $7::bytea[], $8::bytea[], $9::bytea[])
               u (id, owner, lock, term, keep, state, head, tail, checkpoint)`
	reserveOne = `(VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::int, $6::smallint, $7::bytea, $8::bytea, $9::bytea))
       u (id, owner, lock, term, keep, state, head, tail, checkpoint)`
	reserveSteps = `unnest($1::{step}[]) u`
	settleSteps  = `unnest($1::{step}[])
       WITH ORDINALITY u (id, owner, lock, revision, term, keep, late, state, head, tail, checkpoint, n)`
	updateArrays = `unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n)`
	updateOne = `(VALUES ($1::uuid, $2::uuid, $3::bigint, $4::uuid, $5::bigint, $6::int, $7::smallint, $8::smallint, $9::bytea, $10::bytea, $11::bytea, 1::bigint)) u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n)`
)

// The types of their parameters.
var (
	reserveTypes = []uint32{oidUUIDs, oidUUIDs, oidInt8s, oidInt8s, oidInt4s, oidInt2s, oidByteas, oidByteas, oidByteas}
	settleTypes  = []uint32{oidUUIDs, oidUUIDs, oidInt8s, oidInt8s, oidInt4s, oidInt8s, oidInt2s, oidByteas}
	updateTypes  = []uint32{oidUUIDs, oidUUIDs, oidInt8s, oidUUIDs, oidInt8s, oidInt4s, oidInt2s, oidInt2s, oidByteas, oidByteas, oidByteas}
)

// What a statement does about a row or key that another transaction has locked.
const (
	// waits: it waits, for as long as lock_timeout says.
	waits = ``
	// skips: it leaves the row out.
	skips = `
   AND k.id IN (SELECT l.id FROM unnest($1::uuid[]) f (id) JOIN {keys} l ON l.id = f.id FOR UPDATE OF l SKIP LOCKED)`
)

// swapped are the columns that an UPDATE returns for a batch.
const swapped = `u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now`

// newStatements makes the statements of a schema. Steps is the object id of the type
// of arrays of steps.
func newStatements(schema string, steps uint32) (s statements) {
	one := elements(reserveTypes)
	names := tableNames(schema)
	define("retrysafe_", names, []definition{
		{&s.reserve, "reserve", variant(reserveKeys, "{members}", reserveSteps), []uint32{steps}},
		{&s.reserveOne, "reserve_one", variant(reserveKeys, "{members}", reserveOne), one},
		{&s.reserveNew, "reserve_new", reserveNewKey, one},
		{&s.insert, "insert", variant(insertKeys, "{members}", reserveArrays, "{lock mode}", "_shared"), reserveTypes},
		{&s.insertUnlocked, "insert_unlocked", variant(insertKeys, "{members}", reserveArrays, "{lock mode}", ""), reserveTypes},
		{&s.others, "others", selectOthers, []uint32{oidUUIDs, oidUUIDs}},
		{&s.read, "read", selectKeys, []uint32{oidUUIDs}},
		{&s.settle, "settle", variant(settleKeys, "{members}", settleSteps), []uint32{steps}},
		{&s.settleOne, "settle_one", settleKey, elements(settleTypes)},
		{&s.update, "update", variant(updateKeys, "{members}", updateArrays, "{locked}", waits, "{returned}", swapped), updateTypes},
		{&s.updateUnlocked, "update_unlocked", variant(updateKeys, "{members}", updateArrays, "{locked}", skips, "{returned}", swapped), updateTypes},
		{&s.retentions, "retentions", selectRetentions, nil},
		{&s.list, "list", listKeys, []uint32{oidUUID, oidUUID, oidInt2s, oidInt8}},
		{&s.listDue, "list_due", listDueKeys, []uint32{oidUUID, oidUUID, oidInt2s, oidInt8, oidInt4}},
		{&s.listOpen, "list_open", listOpenKeys, []uint32{oidUUID, oidUUID, oidInt2s, oidInt8, oidInt4}},
		{&s.listBuckets, "list_buckets", listBucketKeys, []uint32{oidInt4, oidUUID, oidInt2s, oidInt8, oidUUID, oidUUID, oidBool}},
		{&s.watermark, "watermark", selectWatermark, []uint32{oidInt4}},
		{&s.rebucketRenewed, "rebucket_renewed", rebucketRenewedKeys, []uint32{oidInt4}},
		{&s.partOfSlots, "part_of_slots", selectPartOfSlots, []uint32{oidInt4}},
		{&s.shorten, "shorten", shortenKeys, []uint32{oidInt4, oidInt4}},
		{&s.purge, "purge", purgeKeys, []uint32{oidInt4, oidInt8}},
		{&s.rebucketSettled, "rebucket_settled", rebucketSettledKeys, []uint32{oidInt4, oidInt8}},
		{&s.confirm, "confirm", confirmCommits, nil},
		{&s.countScope, "count", countKeys, []uint32{oidUUID, oidUUID}},
		{&s.announce, "announce", announceKey, append(elements(updateTypes), oidUUID)},
		{&s.lastChange, "last_change", selectLastChange, nil},
		{&s.changes, "changes", selectChanges, []uint32{oidInt8}},
		{&s.begin, "begin", `BEGIN ISOLATION LEVEL READ COMMITTED`, nil},
		{&s.lockOwn, "lock_own", lockOwnKey, []uint32{oidInt8}},
		{&s.readOne, "read_one", selectKey, []uint32{oidUUID}},
		{&s.putOne, "put", variant(putKey, "{lock}", lockOrFail, "{returned}", "k.revision, k.deadline"), one},
		{&s.putHeld, "put_held", putHeldKey, append(slices.Delete(elements(reserveTypes), lockParam, lockParam+1), oidInt8)},
		{&s.beginDefault, "begin_default", `BEGIN`, nil},
		{&s.take, "take", takeOwnKey, []uint32{oidInt8, oidUUID}},
		{&s.settings, "settings", ownSettings, nil},
		{&s.putFinal, "put_final", putFinalKey, append(slices.Delete(elements(reserveTypes), lockParam, lockParam+1), oidInt8)},
		{&s.since, "since", selectSince, nil},
		{&s.sameSince, "same_since", checkSince, []uint32{oidInt8}},
		{&s.commit, "commit", `COMMIT`, nil},
		{&s.rollback, "rollback", `ROLLBACK`, nil},
	})
	define("", names, []definition{
		{&s.tx.lock, "tx_lock", lockKey, nil},
		{&s.tx.read, "tx_read", selectPlainKey, nil},
		{&s.tx.insert, "tx_insert", variant(putKey, "{lock}", lockOrSkip, "{returned}", "{plain columns}"), nil},
		{&s.tx.swap, "tx_swap", variant(updateKeys, "{members}", updateOne, "{locked}", waits, "{returned}", "{plain columns}"), nil},
	})
	return s
}

// elements are the types of which arrays are made.
func elements(arrays []uint32) []uint32 {
	of := map[uint32]uint32{oidUUIDs: oidUUID, oidInt8s: oidInt8, oidInt4s: oidInt4, oidInt2s: oidInt2, oidByteas: oidBytea}
	out := make([]uint32, len(arrays))
	for i, a := range arrays {
		out[i] = of[a]
	}
	return out
}
