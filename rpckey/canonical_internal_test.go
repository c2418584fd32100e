package rpckey

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/retrysafe/retrysafe/internal/test/seed"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
)

func canonical(t *testing.T, m proto.Message, exclude ...string) string {
	t.Helper()
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	must(t, err)
	md := m.ProtoReflect().Descriptor()
	drop := new(fieldTree)
	for _, path := range exclude {
		must(t, drop.add(md, path))
	}
	b, err := appendCanonical(nil, wire, md, drop)
	must(t, err)
	return string(b)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func drawn(r *rand.Rand) *payv1.ChargeRequest {
	m := &payv1.ChargeRequest{Amount: int64(r.IntN(3) - 1), Currency: []string{"", "EUR"}[r.IntN(2)], Labels: map[string]string{}}
	for range r.IntN(4) {
		m.Labels[fmt.Sprint(r.IntN(9))] = fmt.Sprint(r.IntN(2))
	}
	for range r.IntN(3) {
		m.Devices = append(m.Devices, &payv1.Device{Model: []string{"", "x"}[r.IntN(2)], Battery: int32(r.IntN(2))})
	}
	switch r.IntN(3) {
	case 0:
		m.Method = &payv1.ChargeRequest_Card{Card: "4242"}
	case 1:
		m.Method = &payv1.ChargeRequest_Iban{Iban: ""}
	}
	if r.IntN(2) == 0 {
		m.SentAt = &timestamppb.Timestamp{Seconds: int64(r.IntN(2))}
	}
	return m
}

// olderSchema describes ChargeRequest without its last fields.
func olderSchema(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	file := protodesc.ToFileDescriptorProto(payv1.File_pay_proto)
	for _, m := range file.GetMessageType() {
		if m.GetName() != "ChargeRequest" {
			continue
		}
		var kept []*descriptorpb.FieldDescriptorProto
		for _, f := range m.GetField() {
			if f.GetNumber() <= 3 {
				kept = append(kept, f)
			}
		}
		m.Field, m.OneofDecl = kept, nil
	}
	older, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	must(t, err)
	return older.Messages().ByName("ChargeRequest")
}

// A generated message, a dynamic one, and one of an older schema that knows fewer fields
// have the same canonical form; different messages have different ones.
func TestCanonicalFormDoesNotDependOnTheSchema(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seed.For(t), 0))
	older := olderSchema(t)
	seen := map[string]*payv1.ChargeRequest{}
	for range 2000 {
		m := drawn(r)
		want := canonical(t, m)
		sent, err := proto.Marshal(m) // maps in any order
		must(t, err)
		for name, md := range map[string]protoreflect.MessageDescriptor{"dynamic": m.ProtoReflect().Descriptor(), "older": older} {
			got := dynamicpb.NewMessage(md)
			must(t, proto.Unmarshal(sent, got))
			if c := canonical(t, got); c != want {
				t.Fatalf("%v: the %s message has the form %x, want %x", m, name, c, want)
			}
		}
		if first := seen[want]; first != nil && !proto.Equal(first, m) {
			t.Fatalf("%v and %v have the same form", first, m)
		}
		seen[want] = m
		var again payv1.ChargeRequest
		must(t, proto.Unmarshal([]byte(want), &again))
		if !proto.Equal(&again, m) {
			t.Fatalf("the form of %v decodes to %v", m, &again)
		}
	}
}

// Fields that are excluded do not count, wherever they are.
func TestExcludedFieldsDoNotCount(t *testing.T) {
	t.Parallel()
	m := &payv1.ChargeRequest{Amount: 1, SentAt: timestamppb.Now(), Devices: []*payv1.Device{{Model: "x", Battery: 1}, {Battery: 2}}}
	want := canonical(t, &payv1.ChargeRequest{Amount: 1, Devices: []*payv1.Device{{Model: "x"}, {}}})
	if got := canonical(t, m, "sent_at", "devices.battery"); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
	if got, want := canonical(t, m, "devices", "sent_at", "devices.model"), canonical(t, &payv1.ChargeRequest{Amount: 1}); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
	md := m.ProtoReflect().Descriptor()
	for _, path := range []string{"", "nothing", "amount.x", "labels.key", "devices.nothing", "devices.", ".devices", "sent_at.seconds.x"} {
		if new(fieldTree).add(md, path) == nil {
			t.Errorf("%q is accepted", path)
		}
	}
}

// A message in the encoding of groups is put into order like any other.
func TestGroupsAreCanonicalToo(t *testing.T) {
	t.Parallel()
	optional, group, integer := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), descriptorpb.FieldDescriptorProto_TYPE_GROUP.Enum(), descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("group.proto"), Syntax: proto.String("proto2"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name:  proto.String("M"),
			Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("g"), Number: proto.Int32(1), Label: optional, Type: group, TypeName: proto.String(".M.G")}},
			NestedType: []*descriptorpb.DescriptorProto{{Name: proto.String("G"), Field: []*descriptorpb.FieldDescriptorProto{
				{Name: proto.String("a"), Number: proto.Int32(1), Label: optional, Type: integer}, {Name: proto.String("b"), Number: proto.Int32(3), Label: optional, Type: integer},
			}}},
		}},
	}, nil)
	must(t, err)
	m := dynamicpb.NewMessage(file.Messages().Get(0))
	must(t, proto.Unmarshal([]byte{0x0b, 0x18, 9, 0x10, 8, 0x08, 7, 0x0c}, m)) // b, an unknown field, a
	if got, want := canonical(t, m), "\x0b\x08\x07\x10\x08\x18\x09\x0c"; got != want {
		t.Errorf("got %x, want %x", got, want)
	}
	if got, want := canonical(t, m, "g.a"), "\x0b\x10\x08\x18\x09\x0c"; got != want {
		t.Errorf("got %x, want %x", got, want)
	}
}
