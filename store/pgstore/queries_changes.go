package pgstore

// keptChanges is how many announced writes the table keeps.
const keptChanges = "1000"

// changeChannel is the channel of notifications. Stores in several schemas of a database
// share it.
const changeChannel = "retrysafe_changes"

// announceKey is the statement of a swap that is announced. Its parameters are those of
// "update" for one row, and the token of the change.
var announceKey = func() string {
	_, update := cutComment(updateKeys)
	return `
-- Swaps a record and announces the change. It is one statement, so the change is visible
-- exactly if the swap is. The row of the last change is locked until the commit: changes
-- become visible in the order of their numbers. What the server sends to listeners it
-- sends after the commit.
WITH swapped AS (
` + variant(update, "{members}", updateOne, "{locked}", waits, "{returned}", swapped) + `),
l AS (UPDATE {last_change} l SET n = l.n + 1, before = l.token, token = $12::uuid FROM swapped RETURNING l.n, l.before, l.token),
added AS (INSERT INTO {changes} (n, before, token, id) SELECT l.n, l.before, l.token, $1::uuid FROM l),
dropped AS (DELETE FROM {changes} o USING l WHERE o.n <= l.n - ` + keptChanges + `)
SELECT s.n, s.revision, s.deadline, s.created, s.head, s.checkpoint, s.now, pg_notify('` + changeChannel + `', '')::text FROM swapped s, l`
}()

const (
	selectLastChange = `
-- Reads the last change. One snapshot; it takes no lock.
SELECT l.n, l.token FROM {last_change} l`

	selectChanges = `
-- Reads the last change, and the changes behind a number with the records that they
-- changed. One snapshot; it takes no lock.
SELECT l.n, l.token, c.n, c.before, c.token, k.id, k.head
  FROM {last_change} l LEFT JOIN {changes} c ON c.n > $1 LEFT JOIN {keys} k ON k.id = c.id
 ORDER BY c.n`
)

// changeTables are the placeholders of the tables of changes and their names.
func changeTables(schema string) []string {
	names := changeNames(schema)
	return []string{"{changes}", names[0], "{last_change}", names[1]}
}

func changeNames(schema string) []string {
	return []string{qualified(schema, "retrysafe_changes"), qualified(schema, "retrysafe_last_change")}
}
