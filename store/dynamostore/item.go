package dynamostore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// The attributes of an item. The parts of a record are encoded by package storekit, each
// with a checksum of its own, so that a swap writes only the parts that it changes. What
// conditions and indexes need stands beside them.
const (
	attrID       = "id"      // a hash of scope and key
	attrRevision = "rev"     // with attrOwner it is the fence
	attrOwner    = "own"     //
	attrState    = "st"      //
	attrDue      = "due"     // the deadline, in microseconds; the sort key of the index
	attrShard    = "shard"   // the partition key of the index
	attrCreated  = "created" // microseconds
	attrUpdated  = "updated" // microseconds
	attrScope    = "scope"   // for queries by scope; absent if the scope is empty
	attrAttempt  = "attempt" // the part that belongs to the attempt
	attrPoint    = "point"   // the checkpoint; absent if it is zero
	attrOutcome  = "outcome" // the part that every write replaces
	attrNonce    = "nonce"   // identifies the last swap; absent before the first
	attrReplaced = "was"     // the revision that the last swap replaced
	attrExpires  = "expires" // when DynamoDB may delete it, in seconds; only final records have it
	attrVersion  = "version" // of the item that describes the table
	attrShards   = "shards"  // of the item that describes the table
	attrMove     = "move"    // of the same item: the note of a move; absent if there was none
	attrLease    = "lease"   // of the same item: how long a permit lasts, in milliseconds; only tests set it
	attrImport   = "import"  // the number of the run of a move that has imported the record
	indexDue     = "due"     // the index of what is due
	nonceSize    = 12        //
	expiryMargin = time.Hour // how long after the deadline DynamoDB may delete a record
)

type (
	value = types.AttributeValue
	item  = map[string]value
)

func number(n int64) value    { return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)} }
func binaryOf(b []byte) value { return &types.AttributeValueMemberB{Value: b} }
func text(s string) value     { return &types.AttributeValueMemberS{Value: s} }

// idOf returns the id of a key: a hash of the scope's length, the scope and the key. It
// says nothing about the tenant, so no tenant makes a partition hot.
func idOf(ref retrysafe.Ref) []byte {
	var space [256]byte
	b := binary.BigEndian.AppendUint32(space[:0], uint32(len(ref.Scope)))
	b = append(append(b, ref.Scope...), ref.Key...)
	sum := sha256.Sum256(b)
	return sum[:]
}

func keyOf(id []byte) item { return item{attrID: binaryOf(id)} }

// unreadableScope marks the Ref of an item that cannot be read. Its key is the id, so
// that a list can continue behind it. For any other step there is no record of that Ref.
const unreadableScope = "\x00retrysafe: unreadable"

func unreadable(id []byte) retrysafe.Ref {
	return retrysafe.Ref{Scope: unreadableScope, Key: hex.EncodeToString(id)}
}

// afterOf returns the id behind which a list continues.
func afterOf(ref retrysafe.Ref) []byte {
	if b, err := hex.DecodeString(ref.Key); err == nil && len(b) == sha256.Size && ref.Scope == unreadableScope {
		return b
	}
	return idOf(ref)
}

// The index has partitions for records that an engine or a sweeper still has to act upon,
// and for final ones, which only a purge looks for.
const (
	open  = "open"
	final = "final"
)

func classOf(state retrysafe.State) string {
	if state.Forgettable() {
		return final
	}
	return open
}

// shardOf returns the number of the partition of the index. Ids of a lower partition are
// lower, so that a list over all partitions is in the order of ids.
func shardOf(id []byte, shards int) int {
	return int(binary.BigEndian.Uint16(id)) * shards >> 16
}

func partition(class string, shard int) string { return class + "-" + strconv.Itoa(shard) }

// micros returns a time as the index has it.
func micros(t time.Time) int64 { return t.UnixMicro() }

// expiry returns the second from which DynamoDB may delete the record.
func expiry(deadline time.Time) int64 { return deadline.Add(expiryMargin).Unix() + 1 }

// attemptPart encodes what belongs to one attempt: a swap without Overwrite leaves it
// alone.
func attemptPart(r *retrysafe.Record) []byte {
	return storekit.AppendRecord(nil, &retrysafe.Record{
		Ref: r.Ref, KeyText: r.KeyText, Operation: r.Operation, Fingerprint: r.Fingerprint, Attempt: r.Attempt, Request: r.Request,
	})
}

// pointPart encodes the checkpoint.
func pointPart(c *retrysafe.Checkpoint) []byte {
	return storekit.AppendRecord(nil, &retrysafe.Record{Checkpoint: *c})
}

// outcomePart encodes what every write replaces.
func outcomePart(r *retrysafe.Record) []byte {
	return storekit.AppendRecord(nil, &retrysafe.Record{
		State: r.State, Lapse: r.Lapse, Effects: r.Effects, Version: r.Version, Result: r.Result,
		ProviderRef: r.ProviderRef, Reason: r.Reason, Inquiry: r.Inquiry, Retain: r.Retain,
	})
}

// newItem returns the item of a new record.
func (s *Store) newItem(id []byte, r *retrysafe.Record) item {
	it := item{
		attrID: binaryOf(id), attrRevision: number(r.Revision), attrOwner: binaryOf(r.Owner[:]),
		attrState: number(int64(r.State)), attrDue: number(micros(r.Deadline)),
		attrShard:   text(partition(classOf(r.State), shardOf(id, s.shards))),
		attrCreated: number(micros(r.CreatedAt)), attrUpdated: number(micros(r.UpdatedAt)),
		attrAttempt: binaryOf(attemptPart(r)), attrOutcome: binaryOf(outcomePart(r)),
	}
	if r.Scope != "" {
		it[attrScope] = binaryOf([]byte(r.Scope))
	}
	if !r.Checkpoint.IsZero() {
		it[attrPoint] = binaryOf(pointPart(&r.Checkpoint))
	}
	if r.State.Forgettable() {
		it[attrExpires] = number(expiry(r.Deadline))
	}
	return it
}

// update returns the request of a swap.
func (s *Store) update(id []byte, w *retrysafe.Write, now time.Time, nonce []byte) *dynamodb.UpdateItemInput {
	deadline := now.Add(w.Term).Truncate(time.Microsecond)
	u := newUpdate()
	u.set(attrRevision, number(revisionAfter(w.Expect.Revision, now)))
	u.set(attrState, number(int64(w.State)))
	u.set(attrDue, number(micros(deadline)))
	u.set(attrShard, text(partition(classOf(w.State), shardOf(id, s.shards))))
	u.set(attrUpdated, number(micros(now)))
	u.set(attrOutcome, binaryOf(outcomePart(&w.Record)))
	u.set(attrNonce, binaryOf(nonce))
	u.set(attrReplaced, number(w.Expect.Revision))
	if w.State.Forgettable() {
		u.set(attrExpires, number(expiry(deadline)))
	} else {
		u.remove(attrExpires)
	}
	if w.Overwrite {
		u.set(attrOwner, binaryOf(w.Owner[:]))
		u.set(attrAttempt, binaryOf(attemptPart(&w.Record)))
		if w.Attempt == 1 {
			u.set(attrCreated, number(micros(now)))
		}
	}
	if w.Overwrite || w.SetCheckpoint {
		if w.Checkpoint.IsZero() {
			u.remove(attrPoint)
		} else {
			u.set(attrPoint, binaryOf(pointPart(&w.Checkpoint)))
		}
	}
	condition := u.name(attrRevision) + " = " + u.value(number(w.Expect.Revision)) + " AND " + u.name(attrOwner) + " = " + u.value(binaryOf(w.Expect.Owner[:]))
	return u.input(s.table, id, condition)
}

// An update is an update expression under construction. Each attribute has a placeholder,
// so that no name can be one of DynamoDB's reserved words.
type update struct {
	sets, removes []string
	names         map[string]string
	values        item
}

func newUpdate() *update { return &update{names: map[string]string{}, values: item{}} }

func (u *update) name(attr string) string {
	u.names["#"+attr] = attr
	return "#" + attr
}

func (u *update) value(v value) string {
	name := ":v" + strconv.Itoa(len(u.values))
	u.values[name] = v
	return name
}

func (u *update) set(attr string, v value) { u.sets = append(u.sets, u.name(attr)+" = "+u.value(v)) }
func (u *update) remove(attr string)       { u.removes = append(u.removes, u.name(attr)) }

func (u *update) input(table string, id []byte, condition string) *dynamodb.UpdateItemInput {
	expression := "SET " + strings.Join(u.sets, ", ")
	if len(u.removes) > 0 {
		expression += " REMOVE " + strings.Join(u.removes, ", ")
	}
	return &dynamodb.UpdateItemInput{
		TableName: &table, Key: keyOf(id), UpdateExpression: &expression, ConditionExpression: &condition,
		ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

var errOtherKey = fmt.Errorf("%w: the item has the id of this key and the text of another", retrysafe.ErrUnreadable)

// A stored is an item as it was read.
type stored struct {
	record   retrysafe.Record
	nonce    []byte // nil if there was no swap
	replaced int64
}

// decode returns the record of an item. Every error is [retrysafe.ErrUnreadable].
func decode(it item) (stored, error) {
	d := decoder{it: it}
	attempt, outcome := d.record(attrAttempt), d.record(attrOutcome)
	r := attempt
	r.State, r.Lapse, r.Effects, r.Version, r.Result = outcome.State, outcome.Lapse, outcome.Effects, outcome.Version, outcome.Result
	r.ProviderRef, r.Reason, r.Inquiry, r.Retain = outcome.ProviderRef, outcome.Reason, outcome.Inquiry, outcome.Retain
	if it[attrPoint] != nil {
		r.Checkpoint = d.record(attrPoint).Checkpoint
	}
	r.Revision = d.number(attrRevision)
	if owner := d.bytes(attrOwner); len(owner) == len(r.Owner) {
		r.Owner = retrysafe.Owner(owner)
	} else {
		d.fail(attrOwner, errors.New("it has another length"))
	}
	r.Deadline, r.CreatedAt, r.UpdatedAt = d.time(attrDue), d.time(attrCreated), d.time(attrUpdated)
	var last stored
	if it[attrNonce] != nil {
		last.nonce, last.replaced = d.bytes(attrNonce), d.number(attrReplaced)
	}
	switch {
	case d.err != nil:
		return stored{}, d.err
	case retrysafe.State(d.number(attrState)) != r.State, string(d.bytes(attrID)) != string(idOf(r.Ref)):
		return stored{}, fmt.Errorf("%w: its parts are not of one record", retrysafe.ErrUnreadable)
	}
	last.record = r
	return last, nil
}

// A decoder reads attributes and keeps the first error.
type decoder struct {
	it  item
	err error
}

func (d *decoder) fail(attr string, err error) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: attribute %q: %w", retrysafe.ErrUnreadable, attr, err)
	}
}

func (d *decoder) bytes(attr string) []byte {
	v, ok := d.it[attr].(*types.AttributeValueMemberB)
	if !ok {
		d.fail(attr, errors.New("it is missing, or of another type"))
		return nil
	}
	return v.Value
}

func (d *decoder) number(attr string) int64 {
	v, ok := d.it[attr].(*types.AttributeValueMemberN)
	if !ok {
		d.fail(attr, errors.New("it is missing, or of another type"))
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		d.fail(attr, err)
	}
	return n
}

func (d *decoder) time(attr string) time.Time { return time.UnixMicro(d.number(attr)).UTC() }

func (d *decoder) record(attr string) retrysafe.Record {
	b := d.bytes(attr)
	if d.err != nil {
		return retrysafe.Record{}
	}
	r, err := storekit.DecodeRecord(b)
	if err != nil && d.err == nil {
		d.err = err
	}
	return r
}
