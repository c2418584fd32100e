// Package dynamostore keeps records in a table of Amazon DynamoDB.
//
// In one region it loses nothing that it has confirmed: DynamoDB acknowledges a write
// when it is on storage in several availability zones. A global table with eventual
// consistency is class D as soon as two regions use it: a retry that reaches another
// region before the record does runs again. See [Store.Durability].
//
// Each step is one conditional write of one item, and each read is strongly consistent.
// Retries of the AWS SDK are off. The store repeats a request whose reply was lost, and a
// repeated step recognises its own write by its owner or its nonce, so it never conflicts
// with itself. There are no transactions and there is no outbox.
//
// DynamoDB has no clock that a condition could use. Times are the node's, corrected by the
// Date header of the service's responses. Nodes with NTP differ by what that leaves, and
// nodes whose clocks are wrong by no more than four seconds. Leases have to be longer than
// that; the default of 30 s is. Safety rests on the revision alone.
//
// Records that are due are found by an index that follows the table within a second, as
// DynamoDB's global secondary indexes do. So [Store.List] by state or due, and
// [Store.Purge], may find a record a moment late. They read the record itself, or check it
// in the condition of the delete, before they act on it.
//
// An item has at most 400 KB, so an answer has at most [MaxBody] bytes.
package dynamostore
