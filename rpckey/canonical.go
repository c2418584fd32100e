package rpckey

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// appendCanonical appends a message to b in an order of its own: records by field
// number, entries of a map by their bytes. Wire is the deterministic encoding of the
// message. That puts unknown fields last, and orders known ones in ways that differ
// between generated and dynamic messages. Here the place of a field does not depend on
// whether the program's schema has it, so programs with an older and a newer schema
// compute the same fingerprint. Fields in drop are left out.
func appendCanonical(b, wire []byte, md protoreflect.MessageDescriptor, drop *fieldTree) ([]byte, error) {
	type record struct {
		num protowire.Number
		raw []byte
		set bool // an entry of a map
	}
	var all []record
	for len(wire) > 0 {
		num, typ, n := protowire.ConsumeField(wire)
		if n < 0 {
			return b, fmt.Errorf("%s: %w", md.FullName(), protowire.ParseError(n))
		}
		raw, below := wire[:n], drop.at(num)
		wire = wire[n:]
		if below.dropped() {
			continue
		}
		field := md.Fields().ByNumber(num)
		if field != nil && field.Message() != nil {
			var err error
			if raw, err = canonicalField(raw, num, typ, field.Message(), below); err != nil {
				return b, err
			}
		}
		all = append(all, record{num, raw, field != nil && field.IsMap()})
	}
	slices.SortStableFunc(all, func(x, y record) int {
		if x.num == y.num && x.set && y.set {
			return bytes.Compare(x.raw, y.raw)
		}
		return cmp.Compare(x.num, y.num)
	})
	for _, r := range all {
		b = append(b, r.raw...)
	}
	return b, nil
}

// canonicalField returns the record of a field whose value is a message.
func canonicalField(raw []byte, num protowire.Number, typ protowire.Type, md protoreflect.MessageDescriptor, drop *fieldTree) ([]byte, error) {
	_, _, tag := protowire.ConsumeTag(raw)
	out := protowire.AppendTag(make([]byte, 0, len(raw)), num, typ)
	switch typ {
	case protowire.BytesType:
		value, _ := protowire.ConsumeBytes(raw[tag:])
		inside, err := appendCanonical(nil, value, md, drop)
		return protowire.AppendBytes(out, inside), err
	case protowire.StartGroupType:
		value, _ := protowire.ConsumeGroup(num, raw[tag:])
		inside, err := appendCanonical(nil, value, md, drop)
		return protowire.AppendGroup(out, num, inside), err
	default: // not what the schema says; the decoder has kept it as an unknown field
		return raw, nil
	}
}

// fieldTree is a set of fields of a message and of the messages below it. Nil is the
// empty set.
type fieldTree struct {
	whole bool // the field itself is in the set
	below map[protowire.Number]*fieldTree
}

func (t *fieldTree) dropped() bool { return t != nil && t.whole }

// at returns what the set holds of a field.
func (t *fieldTree) at(num protowire.Number) *fieldTree {
	if t == nil {
		return nil
	}
	return t.below[num]
}

// add adds the field at a path of names.
func (t *fieldTree) add(md protoreflect.MessageDescriptor, path string) error {
	for rest := path; ; {
		name, deeper, more := strings.Cut(rest, ".")
		field := md.Fields().ByName(protoreflect.Name(name))
		switch {
		case field == nil:
			return fmt.Errorf("%q: %s has no field %s", path, md.FullName(), name)
		case more && (field.Message() == nil || field.IsMap()):
			return fmt.Errorf("%q: %s of %s is no message that a path could go into", path, name, md.FullName())
		}
		if t.below == nil {
			t.below = make(map[protowire.Number]*fieldTree)
		}
		next := t.below[field.Number()]
		if next == nil {
			next = new(fieldTree)
			t.below[field.Number()] = next
		}
		if t = next; !more {
			t.whole = true
			return nil
		}
		md, rest = field.Message(), deeper
	}
}
