package rpckey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
)

// How [retrysafe.Fingerprint.Alg] is made up. Its high four bits are the secret's ID,
// zero for none.
const (
	// fingerprintVersion is the algorithm below, in the low three bits. They also say
	// which kind of request an algorithm is for: with 4 and 5 in them it is a call of RPC.
	fingerprintVersion = 4
	versionBits        = 0x07
	// chosenFields says that the guard has a choice of what counts. The last bytes of
	// the sum name the choice, so that a retry is compared by the one that its record was
	// stored under, whatever the guard's is by then.
	chosenFields = 0x08
)

// frame encodes the parts of a call that count in its fingerprint. Every part is
// preceded by its length, so that two different calls never have the same encoding. Wire
// is the deterministic encoding of the message.
func (ch *choice) frame(c *Call, wire []byte, md protoreflect.MessageDescriptor, scope string) ([]byte, error) {
	b := make([]byte, 0, len(wire)+256)
	for _, part := range [...]string{"retrysafe rpc", scope, c.Procedure, string(md.FullName())} {
		b = fields.Append(b, part)
	}
	b = binary.AppendUvarint(b, uint64(len(ch.metadata)))
	for _, name := range ch.metadata {
		b = fields.Append(b, name)
		values := c.Metadata(name)
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, value := range values {
			b = fields.Append(b, value)
		}
	}
	return appendCanonical(b, wire, md, ch.excluded(md))
}

// errTooLarge: the request is over [Options.MaxRequest].
var errTooLarge = errors.New("the request is over the limit")

// fingerprint sets the fingerprint of a call, and how to compute a former one.
func (g *Guard) fingerprint(call *retrysafe.Call, c *Call, message proto.Message) error {
	wire, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if len(wire) > g.o.MaxRequest {
		return errTooLarge
	}
	md, scope, current := message.ProtoReflect().Descriptor(), call.Scope, g.choices[0]
	frame, err := current.frame(c, wire, md, scope)
	if err != nil {
		return err
	}
	var secret *Secret
	if len(g.o.Secrets) > 0 {
		secret = &g.o.Secrets[0]
	}
	call.Fingerprint = current.mark(seal(secret, frame, scope))
	call.Refingerprint = func(stored retrysafe.Fingerprint) (retrysafe.Fingerprint, bool) {
		chosen, secret, ok := g.wayOf(stored)
		switch {
		case !ok || chosen == nil: // one of another kind equals no stored one
			return retrysafe.Fingerprint{}, ok
		case chosen == current:
			return chosen.mark(seal(secret, frame, scope)), true
		}
		former, err := chosen.frame(c, wire, md, scope)
		return chosen.mark(seal(secret, former, scope)), err == nil
	}
	return nil
}

// wayOf returns how a stored fingerprint was computed, and reports whether this guard
// can do the same: it has the secret and knows the choice of fields. A record of another
// kind of request is another request: its choice is nil. One of a later version cannot
// be compared.
func (g *Guard) wayOf(stored retrysafe.Fingerprint) (chosen *choice, secret *Secret, ok bool) {
	version := stored.Alg & versionBits
	if version != fingerprintVersion {
		return nil, nil, version != fingerprintVersion+1
	}
	if chosen = g.choiceOf(stored); chosen == nil {
		return nil, nil, false
	}
	id := stored.Alg >> 4
	if id == 0 {
		return chosen, nil, true
	}
	for i := range g.o.Secrets {
		if g.o.Secrets[i].ID == id {
			return chosen, &g.o.Secrets[i], true
		}
	}
	return nil, nil, false
}

// seal hashes a frame. With a secret it computes an HMAC under a key that is derived for
// the scope, so that neither a reader of the store nor another tenant can test a guess.
func seal(secret *Secret, frame []byte, scope string) retrysafe.Fingerprint {
	if secret == nil {
		return retrysafe.Fingerprint{Alg: fingerprintVersion, Sum: sha256.Sum256(frame)}
	}
	derive := hmac.New(sha256.New, secret.Key)
	_, _ = io.WriteString(derive, "retrysafe fingerprint 4\x00"+scope)
	mac := hmac.New(sha256.New, derive.Sum(nil))
	_, _ = mac.Write(frame)
	out := retrysafe.Fingerprint{Alg: fingerprintVersion | secret.ID<<4}
	mac.Sum(out.Sum[:0])
	return out
}
