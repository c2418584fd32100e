// Package dynamofake is a small DynamoDB in memory that speaks the wire protocol, for
// tests. It has what the store of package dynamostore uses, and what dynalite lacks: time
// to live, the item that refused a conditional write, an index that is late, requests
// that are throttled, and a clock that can be set.
//
// It is stricter than the service where that finds mistakes: names and values of an
// expression that are not used are refused, pages are short, and a batch is read in
// parts. The tests of the store run on this package and on dynalite alike.
package dynamofake

import (
	"bytes"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// pageItems is how many items a scan or a query looks at for one page.
	pageItems = 40
	// batchItems is how many items a batch reads. The rest is unprocessed.
	batchItems  = 60
	maxBatch    = 100
	maxItemSize = 400 << 10
	// creating is how many looks at a new table show that it is being created.
	creating = 2
)

// A Server is a running fake. Its methods may be called concurrently.
type Server struct {
	// URL is the endpoint.
	URL  string
	http *httptest.Server

	mu           sync.Mutex
	tables       map[string]*table
	offset       time.Duration
	late         bool
	hideOld      bool
	replicas     []string
	strong       bool
	failing      []failure
	afterFailure func()
	requests     map[string]int
}

type failure struct {
	status  int
	code    string
	applied bool // the request is applied, and its reply is replaced
}

// New starts a server. Close it when done.
func New() *Server {
	s := &Server{tables: map[string]*table{}, requests: map[string]int{}}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = s.http.URL
	return s
}

// Close stops the server and forgets everything.
func (s *Server) Close() { s.http.Close() }

// SetOffset sets how far the server's clock is ahead of the machine's.
func (s *Server) SetOffset(offset time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset = offset
}

// DelayIndexes keeps the indexes as they are until the delay is ended.
func (s *Server) DelayIndexes(late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = late
	for _, t := range s.tables {
		t.index(late)
	}
}

// HideOld makes the server refuse conditional writes without the item, as dynalite and
// old versions of the service do.
func (s *Server) HideOld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideOld = true
}

// SetReplicas makes all tables global ones, with replicas in the regions.
func (s *Server) SetReplicas(strong bool, regions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas, s.strong = regions, strong
}

// FailNext makes the next requests fail, one for each code, with an HTTP status. If
// applied is true they are applied all the same.
func (s *Server) FailNext(status int, applied bool, codes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, code := range codes {
		s.failing = append(s.failing, failure{status, code, applied})
	}
}

// AfterFailure calls do once, before the reply to the next request that fails is sent.
func (s *Server) AfterFailure(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.afterFailure = do
}

// Requests returns how many requests of each operation there were since the last call.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.requests
	s.requests = map[string]int{}
	return was
}

// Expire deletes what time to live allows to be deleted at a time, and returns how many
// items that were.
func (s *Server) Expire(at time.Time) (deleted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		for id, it := range t.items {
			v, ok := it[t.expiry]
			if t.expiry == "" || !ok || v.kind != "N" {
				continue
			}
			if v.compare(value{kind: "N", text: fmt.Sprint(at.Unix())}) < 0 {
				delete(t.items, id)
				deleted++
			}
		}
		t.index(s.late)
	}
	return deleted
}

// Tables returns the names of the tables.
func (s *Server) Tables() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.tables))
}

// A fault is an error of the service.
type fault struct {
	code, message string
	item          item
}

func (f *fault) Error() string { return f.code + ": " + f.message }

func invalid(format string, args ...any) error {
	return &fault{code: "ValidationException", message: fmt.Sprintf(format, args...)}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var in request
	err := json.NewDecoder(r.Body).Decode(&in)
	if err != nil {
		err = &fault{code: "SerializationException", message: err.Error()}
	}
	status, date, body, then := s.answer(operation, &in, err)
	if then != nil {
		then()
	}
	w.Header().Set("Date", date)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// answer performs an operation. Then is what is to be done before the reply is sent.
func (s *Server) answer(operation string, in *request, err error) (status int, date string, body []byte, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[operation]++
	var fail *failure
	if len(s.failing) > 0 {
		fail, s.failing = &s.failing[0], s.failing[1:]
	}
	var out any
	if err == nil && (fail == nil || fail.applied) {
		out, err = s.perform(operation, in)
	}
	status = http.StatusOK
	var refused *fault
	switch {
	case fail != nil:
		status, out = fail.status, map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + fail.code, "message": "injected"}
		then, s.afterFailure = s.afterFailure, nil
	case errors.As(err, &refused):
		reply := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + refused.code, "message": refused.message}
		if len(refused.item) > 0 {
			reply["Item"] = refused.item
		}
		status, out = http.StatusBadRequest, reply
	}
	var text bytes.Buffer
	_ = json.NewEncoder(&text).Encode(out) // values of our own
	return status, time.Now().Add(s.offset).UTC().Format(http.TimeFormat), text.Bytes(), then
}

// A request has the fields of all operations that the fake knows.
type request struct {
	TableName                                                                       string
	Item, Key                                                                       item
	ExclusiveStartKey                                                               item
	ConditionExpression, UpdateExpression, FilterExpression, KeyConditionExpression string
	ExpressionAttributeNames                                                        map[string]string
	ExpressionAttributeValues                                                       item
	ReturnValues, ReturnValuesOnConditionCheckFailure                               string
	IndexName                                                                       string
	Limit                                                                           int
	ConsistentRead                                                                  bool
	RequestItems                                                                    map[string]struct{ Keys []item }
	TimeToLiveSpecification                                                         struct {
		AttributeName string
		Enabled       bool
	}
	AttributeDefinitions, KeySchema, GlobalSecondaryIndexes json.RawMessage
	DeletionProtectionEnabled                               bool
}

func (s *Server) perform(operation string, in *request) (any, error) {
	if operation == "CreateTable" {
		return s.createTable(in)
	}
	if operation == "BatchGetItem" {
		return s.batchGet(in)
	}
	t := s.tables[in.TableName]
	if t == nil {
		return nil, &fault{code: "ResourceNotFoundException", message: "Requested resource not found: Table: " + in.TableName + " not found"}
	}
	switch operation {
	case "DescribeTable":
		return map[string]any{"Table": s.description(t)}, nil
	case "DeleteTable":
		if t.protected {
			return nil, invalid("Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first.")
		}
		delete(s.tables, in.TableName)
		return map[string]any{}, nil
	case "UpdateTable":
		t.protected = in.DeletionProtectionEnabled
		return map[string]any{"TableDescription": s.description(t)}, nil
	case "UpdateTimeToLive":
		t.expiry = ""
		if in.TimeToLiveSpecification.Enabled {
			t.expiry = in.TimeToLiveSpecification.AttributeName
		}
		return map[string]any{"TimeToLiveSpecification": in.TimeToLiveSpecification}, nil
	case "DescribeTimeToLive":
		on := map[string]any{"TimeToLiveStatus": "DISABLED"}
		if t.expiry != "" {
			on = map[string]any{"TimeToLiveStatus": "ENABLED", "AttributeName": t.expiry}
		}
		return map[string]any{"TimeToLiveDescription": on}, nil
	case "GetItem":
		it, err := t.get(in.Key)
		if err != nil || it == nil {
			return map[string]any{}, err
		}
		return map[string]any{"Item": it}, nil
	case "PutItem", "UpdateItem", "DeleteItem":
		out, err := s.write(operation, t, in)
		t.index(s.late)
		return out, err
	case "Query":
		return t.query(in)
	case "Scan":
		return t.scan(in)
	}
	return nil, &fault{code: "UnknownOperationException", message: operation}
}

func (s *Server) createTable(in *request) (any, error) {
	if s.tables[in.TableName] != nil {
		return nil, &fault{code: "ResourceInUseException", message: "Table already exists: " + in.TableName}
	}
	t := &table{request: *in, items: map[string]item{}, creating: creating, protected: in.DeletionProtectionEnabled}
	if err := t.readSchema(); err != nil {
		return nil, err
	}
	s.tables[in.TableName] = t
	return map[string]any{"TableDescription": s.description(t)}, nil
}

func (s *Server) description(t *table) map[string]any {
	status := "ACTIVE"
	if t.creating > 0 {
		t.creating--
		status = "CREATING"
	}
	var indexes []map[string]any
	for _, index := range t.indexes {
		indexes = append(indexes, map[string]any{"IndexName": index.IndexName, "KeySchema": index.KeySchema, "IndexStatus": status})
	}
	d := map[string]any{
		"TableName": t.request.TableName, "TableStatus": status, "KeySchema": t.request.KeySchema, "AttributeDefinitions": t.request.AttributeDefinitions,
		"GlobalSecondaryIndexes": indexes, "ItemCount": len(t.items), "DeletionProtectionEnabled": t.protected,
	}
	if len(s.replicas) > 0 {
		var replicas []map[string]any
		for _, region := range s.replicas {
			replicas = append(replicas, map[string]any{"RegionName": region, "ReplicaStatus": "ACTIVE"})
		}
		d["Replicas"], d["GlobalTableVersion"], d["MultiRegionConsistency"] = replicas, "2019.11.21", "EVENTUAL"
		if s.strong {
			d["MultiRegionConsistency"] = "STRONG"
		}
	}
	return d
}

func (s *Server) batchGet(in *request) (any, error) {
	found, rest := map[string][]item{}, map[string]any{}
	for name, part := range in.RequestItems {
		t := s.tables[name]
		if t == nil {
			return nil, &fault{code: "ResourceNotFoundException", message: name}
		}
		if len(part.Keys) > maxBatch || len(part.Keys) == 0 {
			return nil, invalid("a batch has 1 to %d keys, not %d", maxBatch, len(part.Keys))
		}
		seen := map[string]bool{}
		for i, key := range part.Keys {
			if i == batchItems {
				rest[name] = map[string]any{"Keys": part.Keys[i:], "ConsistentRead": true}
				break
			}
			it, err := t.get(key)
			if err != nil {
				return nil, err
			}
			if seen[t.idOf(key)] {
				return nil, invalid("Provided list of item keys contains duplicates")
			}
			if seen[t.idOf(key)] = true; it != nil {
				found[name] = append(found[name], it)
			}
		}
	}
	return map[string]any{"Responses": found, "UnprocessedKeys": rest}, nil
}

// write performs a conditional write of one item.
func (s *Server) write(operation string, t *table, in *request) (any, error) {
	e := newExpressions(in)
	key := in.Key
	if operation == "PutItem" {
		key = in.Item
	}
	id := t.idOf(key)
	if id == "" {
		return nil, invalid("The provided key element does not match the schema")
	}
	old := t.items[id]
	holds, err := e.condition(in.ConditionExpression, old)
	if err != nil {
		return nil, err
	}
	next := in.Item
	if operation == "UpdateItem" {
		if next = old.clone(); next == nil {
			next = in.Key.clone()
		}
		if err := e.update(in.UpdateExpression, next); err != nil {
			return nil, err
		}
	}
	if err := e.allUsed(); err != nil {
		return nil, err
	}
	if !holds {
		refusal := &fault{code: "ConditionalCheckFailedException", message: "The conditional request failed"}
		if in.ReturnValuesOnConditionCheckFailure == "ALL_OLD" && !s.hideOld {
			refusal.item = old
		}
		return nil, refusal
	}
	if operation == "DeleteItem" {
		delete(t.items, id)
		return map[string]any{}, nil
	}
	if next.size() > maxItemSize {
		return nil, invalid("Item size has exceeded the maximum allowed size")
	}
	if err := t.checkKeys(next); err != nil {
		return nil, err
	}
	t.items[id] = next
	if in.ReturnValues == "ALL_NEW" {
		return map[string]any{"Attributes": next}, nil
	}
	return map[string]any{}, nil
}

// place is the order of a scan: that of a hash of the key, as in the service.
func place(id string) string {
	sum := md5.Sum([]byte(id))
	return string(sum[:])
}

func sorted[T any](all []T, key func(T) string) {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(key(a), key(b)) })
}
