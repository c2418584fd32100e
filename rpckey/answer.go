package rpckey

import (
	"encoding/base64"
	"mime"
	"net/http"
	"strings"
	"time"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// An Answer is how a call ends: with a message or with the status of an error.
type Answer struct {
	// Message is the response. It is nil if there is a Status.
	Message proto.Message
	// Status is that of an error: code, message, details.
	Status *statuspb.Status
	// Header and Trailer are the metadata of the response. Names are in lower case;
	// values under a name that ends in -bin are base64 without padding.
	Header, Trailer map[string][]string
	// Err is the handler's error, for logs and records. No client sees it.
	Err error
	// Stored says that the answer does not come from the handler that the guard has
	// just called, but from a record or from the guard itself. Otherwise the handler's
	// own response or error is to be returned.
	Stored bool
}

// Metadata of a response, in its header.
const (
	// MetadataReplayed is "true" if the answer is that of an earlier call.
	MetadataReplayed = "idempotent-replayed"
	// MetadataExpires is the time at which the answer under this key is forgotten, as an
	// HTTP date.
	MetadataExpires = "idempotency-expires"
)

const (
	// mediaType is that of a stored answer. Its parameter names the message.
	mediaType   = "application/protobuf"
	messageName = "messagetype"
)

var statusName = string((*statuspb.Status)(nil).ProtoReflect().Descriptor().FullName())

// isProtocol reports whether metadata belongs to the protocol of the transport: it sets
// such metadata itself, so it is neither stored nor replayed.
func isProtocol(name string) bool {
	switch name {
	case "content-type", "content-encoding", "accept-encoding", "accept", "host", "user-agent", MetadataReplayed, MetadataExpires:
		return true
	}
	return strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-") || strings.HasPrefix(name, "connect-")
}

// result returns an answer as it is stored: the message or the status as bytes, the
// metadata as headers, trailers under [http.TrailerPrefix]. The Content-Type says what
// the bytes are, so that an operator can read them.
func (g *Guard) result(a *Answer) (retrysafe.Result, error) {
	message, name, code := a.Message, statusName, codepb.Code(a.Status.GetCode())
	if a.Status != nil {
		message = a.Status
	} else {
		name = string(message.ProtoReflect().Descriptor().FullName())
	}
	body, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(message)
	if err != nil {
		return retrysafe.Result{}, err
	}
	res := retrysafe.Result{Status: httpStatus(code), Header: make(map[string][]string), Body: body}
	res.Header["Content-Type"] = []string{mime.FormatMediaType(mediaType, map[string]string{messageName: name})}
	g.keep(res.Header, "", a.Header)
	g.keep(res.Header, http.TrailerPrefix, a.Trailer)
	if len(body) > g.o.MaxResponse {
		res.Body, res.Omitted = nil, true
	}
	return res, nil
}

// keep copies the metadata that is stored.
func (g *Guard) keep(to map[string][]string, prefix string, from map[string][]string) {
	for name, values := range from {
		name = strings.ToLower(name)
		canonical := http.CanonicalHeaderKey(name)
		if len(values) > 0 && !isProtocol(name) && !g.omitted[name] && !headerkind.IsPerExchange(canonical) {
			to[prefix+canonical] = append([]string(nil), values...)
		}
	}
}

// replay returns the answer of a record, marked as a replay.
func (g *Guard) replay(procedure string, output protoreflect.MessageDescriptor, key string, out *retrysafe.Outcome) Answer {
	a := g.stored(procedure, output, key, out)
	if a.Header == nil {
		a.Header = make(map[string][]string)
	}
	a.Header[MetadataReplayed] = []string{"true"}
	return a
}

// stored returns the answer of a record.
func (g *Guard) stored(procedure string, output protoreflect.MessageDescriptor, key string, out *retrysafe.Outcome) Answer {
	a := Answer{Stored: true}
	media, params, _ := mime.ParseMediaType(firstOf(out.Header["Content-Type"]))
	switch name := params[messageName]; {
	case out.Omitted || media != mediaType && out.Status < 400:
		// The response was too large, was erased, or is one that an operator, a
		// reconciler or a message has stored without the response of this method.
		a = g.refuse(procedure, key, &refusal{problem: responseNotStored})
	case media != mediaType:
		a.Status = &statuspb.Status{Code: int32(codeOf(out.Status)), Message: storedElsewhere}
	case name == statusName:
		a.Status = new(statuspb.Status)
		if proto.Unmarshal(out.Body, a.Status) != nil || a.Status.GetCode() == 0 {
			return g.unreadable(procedure, key, name)
		}
	default:
		message, ok := decode(out.Body, name, output)
		if !ok {
			return g.unreadable(procedure, key, name)
		}
		a.Message = message
	}
	for name, values := range out.Header {
		plain, trailer := strings.CutPrefix(name, http.TrailerPrefix)
		plain = strings.ToLower(plain)
		switch {
		case isProtocol(plain) || headerkind.IsPerExchange(http.CanonicalHeaderKey(plain)) || media != mediaType:
		case trailer:
			a.Trailer = with(a.Trailer, plain, values...)
		default:
			a.Header = with(a.Header, plain, values...)
		}
	}
	a.Header = withExpiry(a.Header, out.Expires)
	return a
}

// storedElsewhere is the text of an error that was not stored by an RPC.
const storedElsewhere = "The call has ended with an error that was recorded without its text. It does not run again under this key."

// unreadable returns the refusal of a record whose message this program does not know.
func (g *Guard) unreadable(procedure, key, name string) Answer {
	g.o.Logger.Error("retrysafe: a stored response cannot be read: this program does not have its message, or the method returns another one now",
		"procedure", procedure, "key", retrysafe.HashKey(key), "message", name)
	return g.refuse(procedure, key, &refusal{problem: recordUnreadable})
}

// decode returns the stored message of this name, as the type that is linked into the
// program. Output describes what the method returns, if that is known: a stored message
// of another type is none that its caller could read.
func decode(body []byte, name string, output protoreflect.MessageDescriptor) (proto.Message, bool) {
	full := protoreflect.FullName(name)
	if output != nil && output.FullName() != full {
		return nil, false
	}
	typ, err := protoregistry.GlobalTypes.FindMessageByName(full)
	switch {
	case err == nil:
	case output != nil:
		typ = dynamicpb.NewMessageType(output)
	default:
		return nil, false
	}
	message := typ.New().Interface()
	return message, proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(body, message) == nil
}

// with adds metadata.
func with(to map[string][]string, name string, values ...string) map[string][]string {
	if to == nil {
		to = make(map[string][]string)
	}
	to[name] = append([]string(nil), values...)
	return to
}

// withExpiry adds the time at which an answer is forgotten, as httpkey does, if there is
// one.
func withExpiry(header map[string][]string, t time.Time) map[string][]string {
	if t.IsZero() {
		return header
	}
	return with(header, MetadataExpires, t.UTC().Format(http.TimeFormat))
}

func firstOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// EncodeBinary returns metadata of gRPC, whose values under a name that ends in -bin
// are bytes, in the form of an [Answer].
func EncodeBinary(md map[string][]string) map[string][]string {
	return mapBinary(md, func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) })
}

// DecodeBinary is the inverse of [EncodeBinary]. A value that is not base64 stays as it
// is.
func DecodeBinary(md map[string][]string) map[string][]string {
	return mapBinary(md, func(s string) string {
		if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "=")); err == nil {
			return string(b)
		}
		return s
	})
}

func mapBinary(md map[string][]string, f func(string) string) map[string][]string {
	if md == nil {
		return nil
	}
	out := make(map[string][]string, len(md))
	for name, values := range md {
		values = append([]string(nil), values...)
		if strings.HasSuffix(name, "-bin") {
			for i := range values {
				values[i] = f(values[i])
			}
		}
		out[name] = values
	}
	return out
}
