package rpckey_test

import (
	"encoding/hex"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// sentAt is one charge, stamped with a time.
func sentAt(amount, seconds int64) *payv1.ChargeRequest {
	return &payv1.ChargeRequest{Amount: amount, SentAt: &timestamppb.Timestamp{Seconds: seconds}}
}

var (
	withoutTime = rpckey.Fields{Exclude: []string{"sent_at"}}
	byVersion   = rpckey.Fields{Exclude: []string{"devices.battery", "sent_at"}, Metadata: []string{"x-version"}}
	secrets     = []rpckey.Secret{{ID: 3, Key: []byte("0123456789abcdef")}}
)

// choosing returns a guard over s with a choice of fields.
func choosing(t *testing.T, s retrysafe.Store, keyed []rpckey.Secret, now rpckey.Fields, former ...rpckey.Fields) *rpckey.Guard {
	t.Helper()
	return guard(t, s, rpckey.Options{Exclude: now.Exclude, FingerprintMetadata: now.Metadata, FormerFields: former, Secrets: keyed})
}

// answers sends a charge and compares how it ends: with OK if it ran or was replayed.
func answers(t *testing.T, g *rpckey.Guard, r *payv1.ChargeRequest, want codes.Code, replayed bool) {
	t.Helper()
	a := ask(t, g, r)
	if got := codes.Code(a.Status.GetCode()); got != want || want == codes.OK && a.Stored != replayed {
		t.Errorf("%v: got %s, stored %v, want %s, %v", r, got, a.Stored, want, replayed)
	}
}

// Records carry fingerprints, so they stay what they are.
func TestFingerprintsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keyed  []rpckey.Secret
		fields rpckey.Fields
		alg    uint8
		sum    string
	}{
		{nil, rpckey.Fields{}, 0x04, "a2851aeb11794b3969051f2431db2a664eb50b7ba2eacc9cfe38dd8dd3d60bc3"},
		{secrets, rpckey.Fields{}, 0x34, "2f5e30615ea68c341961c6d0febc061ed1148cb699847912b5632d417f239479"},
		{nil, withoutTime, 0x0c, "a0a1e5df479bdbb6e71c3f9f28081ccc700efd1ca08d0cf862d957692742c587"},
		{secrets, byVersion, 0x3c, "292dd8c9caf14bd87ae487aa24afc28aa720ca40dcbb7a03748301591b5fc137"},
	} {
		s := memstore.New(nil)
		answers(t, choosing(t, s, c.keyed, c.fields), sentAt(1, 1), codes.OK, false)
		r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
		must(t, err)
		if got := hex.EncodeToString(r.Fingerprint.Sum[:]); r.Fingerprint.Alg != c.alg || got != c.sum {
			t.Errorf("%v: got %#02x %s, want %#02x %s", c.fields, r.Fingerprint.Alg, got, c.alg, c.sum)
		}
	}
}

// A record names the choice that it was stored under, and a retry is compared by that
// one: a changed list of fields turns no retry of a live key into a mismatch, and no
// different call into a retry.
func TestFormerFieldsStillVerify(t *testing.T) {
	t.Parallel()
	for name, keyed := range map[string][]rpckey.Secret{"plain": nil, "keyed": secrets} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New(nil)
			answers(t, choosing(t, s, keyed, rpckey.Fields{}), sentAt(1, 1), codes.OK, false)
			for _, g := range []*rpckey.Guard{
				choosing(t, s, keyed, withoutTime), // what was stored without a choice needs none to be listed
				choosing(t, s, keyed, byVersion, withoutTime),
			} {
				answers(t, g, sentAt(1, 1), codes.OK, true)
				answers(t, g, sentAt(1, 2), codes.FailedPrecondition, false)
				answers(t, g, &payv1.ChargeRequest{Amount: 1}, codes.FailedPrecondition, false)
			}

			s = memstore.New(nil)
			answers(t, choosing(t, s, keyed, withoutTime), sentAt(1, 1), codes.OK, false)
			for _, g := range []*rpckey.Guard{
				choosing(t, s, keyed, withoutTime),
				choosing(t, s, keyed, byVersion, rpckey.Fields{Exclude: []string{"sent_at", "sent_at"}}),
				choosing(t, s, keyed, rpckey.Fields{}, byVersion, withoutTime),
			} {
				answers(t, g, sentAt(1, 2), codes.OK, true)
				answers(t, g, sentAt(2, 1), codes.FailedPrecondition, false)
			}
			for _, g := range []*rpckey.Guard{ // a choice that a guard does not know is not guessed at
				choosing(t, s, keyed, rpckey.Fields{}),
				choosing(t, s, keyed, byVersion),
			} {
				answers(t, g, sentAt(1, 1), codes.Unavailable, false)
				answers(t, g, sentAt(2, 1), codes.Unavailable, false)
			}
		})
	}
}
