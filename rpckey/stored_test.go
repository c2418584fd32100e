package rpckey_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// However the handler of a transport spells its metadata, what belongs to the protocol and
// what is not to be stored are neither in the record nor in a replay.
func TestMetadataIsStoredWhateverItsCase(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	o := rpckey.Options{OmitMetadata: []string{"X-Session"}}
	first, _ := tell(t, engine(t, s), o, func(context.Context) rpckey.Answer {
		return rpckey.Answer{Message: &payv1.ChargeResponse{}, Header: map[string][]string{
			"X-Session": {"secret"}, "X-Run": {"1"}, "X-None": {}, "Content-Type": {"application/grpc"}, "Grpc-Status": {"0"},
		}}
	})
	if first.Status != nil {
		t.Fatalf("the call gets %v", first.Status)
	}
	r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
	must(t, err)
	if names := slices.Sorted(maps.Keys(r.Result.Header)); !slices.Equal(names, []string{"Content-Type", "X-Run"}) || r.Result.Header["Content-Type"][0] == "application/grpc" {
		t.Errorf("the record has %v", r.Result.Header)
	}
	again, _ := tell(t, engine(t, s), o, nil)
	if names := slices.Sorted(maps.Keys(again.Header)); !slices.Equal(names, []string{rpckey.MetadataExpires, rpckey.MetadataReplayed, "x-run"}) {
		t.Errorf("a replay has %v", again.Header)
	}
}

// A record may have been stored by another program, or be damaged. No replay has metadata
// that belongs to a protocol or to another one's answer, and no error without a code is a
// success.
func TestReplayOfARecordThatAnotherProgramHasStored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*retrysafe.Result)
		refuse string
		code   codepb.Code
		run    bool
	}{
		"headers of the protocol": {func(r *retrysafe.Result) {
			r.Header["Grpc-Status"], r.Header["Connection"] = []string{"0"}, []string{"close"}
		}, "", codepb.Code_NOT_FOUND, true},
		"an error over HTTP": {func(r *retrysafe.Result) {
			r.Status, r.Header["Content-Type"] = 404, []string{"text/plain"}
		}, "", codepb.Code_NOT_FOUND, false},
		"the first error over HTTP": {func(r *retrysafe.Result) {
			r.Status, r.Header["Content-Type"] = 400, []string{"text/plain"}
		}, "", codepb.Code_INVALID_ARGUMENT, false},
		"an answer over HTTP": {func(r *retrysafe.Result) {
			r.Status, r.Header["Content-Type"] = 399, []string{"text/plain"}
		}, "response-not-stored", codepb.Code_ALREADY_EXISTS, false},
		"a status without a code": {func(r *retrysafe.Result) { r.Body = nil }, "record-unreadable", codepb.Code_UNAVAILABLE, false},
	} {
		s := memstore.New(nil)
		e := engine(t, s)
		tell(t, e, rpckey.Options{}, func(context.Context) rpckey.Answer {
			return rpckey.Answer{Status: &statuspb.Status{Code: int32(codepb.Code_NOT_FOUND)}, Header: map[string][]string{"x-run": {"1"}}}
		})
		r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
		must(t, err)
		w := r.Update()
		result := *w.Result
		result.Header = maps.Clone(result.Header)
		c.change(&result)
		w.Result, w.Term = &result, r.Retain
		_, err = s.Swap(t.Context(), w)
		must(t, err)
		a, code := tell(t, e, rpckey.Options{}, nil)
		if code != c.refuse || codepb.Code(a.Status.GetCode()) != c.code {
			t.Errorf("%s: the retry gets %q %v, want %q %s", name, code, a.Status, c.refuse, c.code)
		}
		if c.refuse != "" {
			continue
		}
		want := []string{rpckey.MetadataExpires, rpckey.MetadataReplayed}
		if c.run {
			want = append(want, "x-run")
		}
		if names := slices.Sorted(maps.Keys(a.Header)); !slices.Equal(names, want) {
			t.Errorf("%s: the retry gets %v", name, a.Header)
		}
	}
}

// The messages of a service may be known to its transport alone, as those of a proxy are.
// Their answers are replayed by what describes the method.
func TestReplayOfAMessageThatIsNotLinked(t *testing.T) {
	t.Parallel()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("unlinked.proto"), Package: proto.String("unlinked"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Payment"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: proto.String("id"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Bank"), Method: []*descriptorpb.MethodDescriptorProto{{
			Name: proto.String("Pay"), InputType: proto.String(".unlinked.Payment"), OutputType: proto.String(".unlinked.Payment"),
		}}}},
	}, nil)
	must(t, err)
	method := file.Services().Get(0).Methods().Get(0)
	paid := dynamicpb.NewMessage(method.Output())
	paid.Set(method.Output().Fields().Get(0), protoreflect.ValueOfString("ch_1"))
	g := guard(t, memstore.New(nil), rpckey.Options{})
	for _, replayed := range []bool{false, true} {
		a := g.Unary(t.Context(), &rpckey.Call{
			Procedure: "/unlinked.Bank/Pay", Method: method, Message: dynamicpb.NewMessage(method.Input()), Metadata: func(string) []string { return []string{key} },
		}, func(context.Context, bool) rpckey.Answer { return rpckey.Answer{Message: paid} })
		if !proto.Equal(a.Message, paid) || a.Status != nil || (len(a.Header[rpckey.MetadataReplayed]) == 1) != replayed {
			t.Errorf("replayed %t: the caller gets %+v", replayed, a)
		}
	}
}
