package rpckey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
)

// How [retrysafe.Fingerprint.Alg] is made up. Its high four bits are the secret's ID,
// zero for none.
const (
	// fingerprintVersion is the algorithm below, in the low four bits.
	fingerprintVersion = 4
	versionBits        = 0x0f
	// kindBits say which kind of request an algorithm is for: with 4 and 5 in them it is
	// a call of RPC.
	kindBits = 0x07
)

// frame encodes the parts of a call that count in its fingerprint. Every part is
// preceded by its length, so that two different calls never have the same encoding.
func (g *Guard) frame(c *Call, message proto.Message, scope string) ([]byte, error) {
	wire, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	md := message.ProtoReflect().Descriptor()
	b := make([]byte, 0, len(wire)+256)
	for _, part := range [...]string{"retrysafe rpc", scope, c.Procedure, string(md.FullName())} {
		b = fields.Append(b, part)
	}
	b = binary.AppendUvarint(b, uint64(len(g.o.FingerprintMetadata)))
	for _, name := range g.o.FingerprintMetadata {
		b = fields.Append(b, name)
		values := c.Metadata(name)
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, value := range values {
			b = fields.Append(b, value)
		}
	}
	return appendCanonical(b, wire, md, g.excludedOf(md))
}

// seal hashes a frame. With secrets it computes an HMAC under a key that is derived for
// the scope, so that neither a reader of the store nor another tenant can test a guess.
func (g *Guard) seal(frame []byte, scope string) retrysafe.Fingerprint {
	var secret *Secret
	if len(g.o.Secrets) > 0 {
		secret = &g.o.Secrets[0]
	}
	return sealWith(secret, frame, scope)
}

func sealWith(secret *Secret, frame []byte, scope string) retrysafe.Fingerprint {
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

// sealAs is seal under a stored algorithm, if this guard has its secret. A record of
// another kind of request is another request. One of a later version cannot be compared.
func (g *Guard) sealAs(alg uint8, frame []byte, scope string) (retrysafe.Fingerprint, bool) {
	switch kind := alg & kindBits; {
	case kind != fingerprintVersion && kind != fingerprintVersion+1:
		return retrysafe.Fingerprint{}, true // it equals no stored one
	case alg&versionBits != fingerprintVersion:
		return retrysafe.Fingerprint{}, false
	case alg>>4 == 0:
		return sealWith(nil, frame, scope), true
	}
	for i := range g.o.Secrets {
		if g.o.Secrets[i].ID == alg>>4 {
			return sealWith(&g.o.Secrets[i], frame, scope), true
		}
	}
	return retrysafe.Fingerprint{}, false
}
