package httpkey_test

import (
	"encoding/hex"
	"net/http"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// algorithms are the fingerprints of one request, [algorithm.send], by each way to
// compute them. Records carry them, so they stay what they are.
var algorithms = []algorithm{
	{"plain", nil, nil,
		print(0x02, "492ce1483a07eb02f294e3792c15dbf65376d7307dcf327ddffc26e64e8dc22c"),
		print(0x01, "9e1c4e0a53387ff44ca97ecf03dd4710b064f740598dcb021a7861d606231533")},
	{"keyed", []httpkey.Secret{secret(3, "a")}, nil,
		print(0x32, "70641c1c0064f78d7e7d8877ebb39e5e6a94a568173cefe8579b71ffe3f8bb42"),
		print(0x31, "666127dcbc1cfe5ebfe73667c002d3401ee9bc3e5f8455eac9e9b739148426fe")},
	{"of chosen fields", nil, []string{"/sent_at"},
		print(0x0a, "492ce1483a07eb02f294e3792c15dbf65376d7307dcf327ddffc26e6c1072e5b"),
		print(0x09, "9e1c4e0a53387ff44ca97ecf03dd4710b064f740598dcb021a7861d6c1072e5b")},
	{"keyed, of chosen fields", []httpkey.Secret{secret(3, "a")}, []string{"/sent_at"},
		print(0x3a, "70641c1c0064f78d7e7d8877ebb39e5e6a94a568173cefe8579b71ffc1072e5b"),
		print(0x39, "666127dcbc1cfe5ebfe73667c002d3401ee9bc3e5f8455eac9e9b739c1072e5b")},
}

type algorithm struct {
	name             string
	secrets          []httpkey.Secret
	exclude          []string
	scoped, unscoped retrysafe.Fingerprint
}

func print(alg uint8, sum string) retrysafe.Fingerprint {
	f := retrysafe.Fingerprint{Alg: alg}
	if n, err := hex.Decode(f.Sum[:], []byte(sum)); err != nil || n != len(f.Sum) {
		panic("a sum has 64 digits")
	}
	return f
}

func (a algorithm) options(c *config) { c.Secrets, c.Exclude = a.secrets, a.exclude }

// send sends the request, or the same one with another amount.
func (algorithm) send(t *testing.T, b *bundle, amount string) *response {
	t.Helper()
	return b.post(t, key, `{"amount":`+amount+`,"currency":"EUR"}`, with("X-Tenant", "acme"), to("/payments?b=2&a=1"))
}

func TestFingerprintsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		b := setup(t, a.options)
		a.send(t, b, "1200").ran(t, 1, false)
		if got := b.state(t).Fingerprint; got != a.scoped {
			t.Errorf("%s: got %#02x %x, want %#02x %x", a.name, got.Alg, got.Sum, a.scoped.Alg, a.scoped.Sum)
		}
	}
}

// So do the fingerprints of bodies of other kinds.
func TestFingerprintsOfFormsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	parts := "--b\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n1200\r\n--b--\r\n"
	for _, c := range []struct{ contentType, body, sum string }{
		{"application/x-www-form-urlencoded", "currency=EUR&amount=1200", "1180711025377bc50767301d1222343d812b7e4ec728fc9196f45a54b3321af5"},
		{"multipart/form-data; boundary=b", parts, "ec58c2dba8f90f366c915ef3925916d4e3e3e513f0b69b2519cd4b7c3c3dbb25"},
		{"text/plain", "1200 EUR", "502092ea2d3be4c1a3ad5675fa869174d6765d7e2a415a5e48112aee1c640cab"},
	} {
		b := setup(t)
		b.post(t, key, c.body, with("Content-Type", c.contentType)).ran(t, 1, false)
		if got := b.state(t).Fingerprint; got.Alg != 0x02 || hex.EncodeToString(got.Sum[:]) != c.sum {
			t.Errorf("%s: got %#02x %x, want 0x02 %s", c.contentType, got.Alg, got.Sum, c.sum)
		}
	}
}

// restamp gives the record another fingerprint, as another program would have stored it.
func (b *bundle) restamp(t *testing.T, f retrysafe.Fingerprint) {
	t.Helper()
	r := b.state(t).Update()
	r.Fingerprint, r.Owner, r.Overwrite, r.Attempt, r.Term = f, retrysafe.Owner{1}, true, 2, r.Retain
	_, err := b.mem.Swap(t.Context(), r)
	must(t, err)
}

// A record whose fingerprint has no scope in it is from before fingerprints had one. Its
// retry gets the answer, and another request under its key is refused, whatever secrets
// and fields the guard has by now.
func TestRecordWithoutTheScopeInItsFingerprintVerifies(t *testing.T) {
	t.Parallel()
	for _, stored := range algorithms {
		b := setup(t, stored.options)
		stored.send(t, b, "1200").ran(t, 1, false)
		b.restamp(t, stored.unscoped)
		for _, now := range algorithms {
			g, err := b.guard.With(func(o *httpkey.Options) {
				o.Exclude, o.FormerFields = now.exclude, []httpkey.Fields{{Exclude: stored.exclude}}
				o.Secrets = now.secrets
				if o.Secrets == nil {
					o.Secrets = stored.secrets
				}
			})
			must(t, err)
			b.Handler = g.Handler(b.counted(b.created))
			stored.send(t, b, "1200").ran(t, 1, true)
			stored.send(t, b, "1201").refused(t, http.StatusUnprocessableEntity, "key-reused")
			if got := b.state(t).Fingerprint; got != stored.unscoped {
				t.Errorf("a retry has changed the record of algorithm %#02x to %#02x", stored.unscoped.Alg, got.Alg)
			}
		}
		b.ranTimes(t, 1)
	}
}

// An attempt that failed under the former algorithm runs again, and its record goes on
// under that one.
func TestAttemptUnderTheFormerFingerprintRunsAgain(t *testing.T) {
	t.Parallel()
	fails := true
	b := setup(t, func(c *config) {
		c.handler = func(w http.ResponseWriter, _ *http.Request) {
			if w.WriteHeader(http.StatusCreated); fails {
				panic("it fails")
			}
		}
		c.engine.Policy = retrysafe.Policy{Effects: retrysafe.EffectsKeyed}
	})
	plain := algorithms[0]
	if got := plain.send(t, b, "1200"); got.status < 500 {
		t.Fatalf("got %d", got.status)
	}
	b.restamp(t, plain.unscoped)
	plain.send(t, b, "1201").refused(t, http.StatusUnprocessableEntity, "key-reused")
	fails = false
	if got := plain.send(t, b, "1200"); got.status != http.StatusCreated {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if got := b.state(t); got.Fingerprint != plain.unscoped || got.State != retrysafe.StateCompleted {
		t.Errorf("the record is %s under algorithm %#02x", got.State, got.Fingerprint.Alg)
	}
	b.ranTimes(t, 2)
}
