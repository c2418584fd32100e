package dynamofake

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// A value is an attribute: a string, a number as text, or bytes.
type value struct{ kind, text string }

func (v value) MarshalJSON() ([]byte, error) {
	text := v.text
	if v.kind == "B" {
		text = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return json.Marshal(map[string]string{v.kind: text})
}

func (v *value) UnmarshalJSON(b []byte) error {
	var one map[string]string
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	for kind, text := range one {
		v.kind, v.text = kind, text
	}
	switch {
	case len(one) != 1:
		return fmt.Errorf("a value has one type, not %d", len(one))
	case v.kind == "B":
		raw, err := base64.StdEncoding.DecodeString(v.text)
		v.text = string(raw)
		return err
	case v.kind == "N":
		if _, ok := new(big.Rat).SetString(v.text); !ok {
			return fmt.Errorf("%q is no number", v.text)
		}
	case v.kind != "S":
		return fmt.Errorf("this fake knows no values of type %s", v.kind)
	}
	return nil
}

// compare orders values of one type. Values of different types are never equal.
func (v value) compare(o value) int {
	if v.kind != o.kind {
		return strings.Compare(v.kind, o.kind)
	}
	if v.kind == "N" {
		a, _ := new(big.Rat).SetString(v.text)
		b, _ := new(big.Rat).SetString(o.text)
		return a.Cmp(b)
	}
	return strings.Compare(v.text, o.text)
}

type item map[string]value

func (it item) clone() item { return maps.Clone(it) }

func (it item) size() (n int) {
	for name, v := range it {
		n += len(name) + len(v.text)
	}
	return n
}

type keySchema []struct{ AttributeName, KeyType string }

type indexSchema struct {
	IndexName string
	KeySchema keySchema
}

// A table has a partition key of type B and no sort key. Its indexes have both.
type table struct {
	request   request
	key       string
	indexes   []indexSchema
	kinds     map[string]string
	items     map[string]item
	indexed   map[string]item // what the indexes show
	expiry    string
	creating  int
	protected bool
}

func (t *table) readSchema() error {
	var key keySchema
	var attributes []struct{ AttributeName, AttributeType string }
	for raw, into := range map[*json.RawMessage]any{&t.request.KeySchema: &key, &t.request.AttributeDefinitions: &attributes, &t.request.GlobalSecondaryIndexes: &t.indexes} {
		if len(*raw) == 0 {
			continue
		}
		if err := json.Unmarshal(*raw, into); err != nil {
			return invalid("%v", err)
		}
	}
	if len(key) == 0 {
		return invalid("a table needs a key")
	}
	t.key, t.kinds = key[0].AttributeName, map[string]string{}
	for _, a := range attributes {
		t.kinds[a.AttributeName] = a.AttributeType
	}
	return nil
}

// index brings the indexes up to date, unless they are late.
func (t *table) index(late bool) {
	if !late {
		t.indexed = nil
	} else if t.indexed == nil {
		t.indexed = maps.Clone(t.items)
	}
}

// idOf returns the key of an item, or "" if it has none of the right type.
func (t *table) idOf(it item) string {
	if v := it[t.key]; v.kind == t.kinds[t.key] {
		return v.text
	}
	return ""
}

func (t *table) get(key item) (item, error) {
	id := t.idOf(key)
	if id == "" || len(key) != 1 {
		return nil, invalid("The provided key element does not match the schema")
	}
	return t.items[id], nil
}

// checkKeys returns an error if an attribute of an index has another type.
func (t *table) checkKeys(it item) error {
	for _, index := range t.indexes {
		for _, k := range index.KeySchema {
			if v, ok := it[k.AttributeName]; ok && (v.kind != t.kinds[k.AttributeName] || v.text == "") {
				return invalid("Type mismatch for Index Key %s", k.AttributeName)
			}
		}
	}
	return nil
}

func (t *table) scan(in *request) (any, error) {
	e := newExpressions(in)
	ids := slices.Collect(maps.Keys(t.items))
	sorted(ids, place)
	if in.ExclusiveStartKey != nil {
		after := place(t.idOf(in.ExclusiveStartKey))
		ids = slices.DeleteFunc(ids, func(id string) bool { return place(id) <= after })
	}
	limit := pageItems
	if in.Limit > 0 {
		limit = min(limit, in.Limit)
	}
	found := []item{}
	reply := map[string]any{}
	for i, id := range ids {
		if i == limit {
			reply["LastEvaluatedKey"] = item{t.key: t.items[ids[i-1]][t.key]}
			break
		}
		holds, err := e.condition(in.FilterExpression, t.items[id])
		if err != nil {
			return nil, err
		}
		if holds {
			found = append(found, t.items[id])
		}
	}
	if len(ids) > 0 {
		if err := e.allUsed(); err != nil {
			return nil, err
		}
	}
	reply["Items"], reply["Count"] = found, len(found)
	return reply, nil
}

func (t *table) query(in *request) (any, error) {
	at := slices.IndexFunc(t.indexes, func(x indexSchema) bool { return x.IndexName == in.IndexName })
	if at < 0 || in.ConsistentRead {
		return nil, invalid("this fake knows queries of global indexes, which are not consistent")
	}
	partition, order := t.indexes[at].KeySchema[0].AttributeName, t.indexes[at].KeySchema[1].AttributeName
	items := t.items
	if t.indexed != nil {
		items = t.indexed
	}
	e := newExpressions(in)
	var all []item
	for _, it := range items {
		if it[partition].kind == "" || it[order].kind == "" {
			continue // the index is sparse
		}
		holds, err := e.condition(in.KeyConditionExpression, it)
		if err != nil {
			return nil, err
		}
		if holds {
			all = append(all, item{t.key: it[t.key], partition: it[partition], order: it[order]})
		}
	}
	compare := func(a, b item) int {
		if c := a[order].compare(b[order]); c != 0 {
			return c
		}
		return strings.Compare(place(a[t.key].text), place(b[t.key].text))
	}
	slices.SortFunc(all, compare)
	if start := in.ExclusiveStartKey; start != nil {
		if len(start) != 3 {
			return nil, invalid("The provided starting key is invalid")
		}
		all = slices.DeleteFunc(all, func(it item) bool { return compare(it, start) <= 0 })
	}
	limit := pageItems
	if in.Limit > 0 {
		limit = min(limit, in.Limit)
	}
	reply := map[string]any{}
	if len(all) > limit {
		all = all[:limit]
		reply["LastEvaluatedKey"] = all[limit-1]
	}
	reply["Items"], reply["Count"] = append([]item{}, all...), len(all)
	return reply, nil
}
