package httpkey_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

func secret(id uint8, letter string) httpkey.Secret {
	return httpkey.Secret{ID: id, Key: []byte(strings.Repeat(letter, 32))}
}

func withSecrets(s ...httpkey.Secret) func(*config) {
	return func(c *config) { c.Secrets = s }
}

// rotate puts another guard, with other secrets, before the same store.
func (b *bundle) rotate(t *testing.T, s ...httpkey.Secret) {
	t.Helper()
	g, err := b.guard.With(func(o *httpkey.Options) { o.Secrets = s })
	must(t, err)
	b.Handler = g.Handler(b.counted(b.created))
}

func TestOldSecretStillVerifies(t *testing.T) {
	t.Parallel()
	a, z := secret(1, "a"), secret(2, "z")
	b := setup(t, withSecrets(a))
	b.post(t, key, `{"n":1}`).ran(t, 1, false)
	if got := b.state(t).Fingerprint.Alg; got != 1<<4|2 {
		t.Errorf("the record names algorithm %#x", got)
	}
	b.rotate(t, z, a)
	b.post(t, key, `{"n":1}`).ran(t, 1, true)
	b.post(t, key, `{"n":2}`).refused(t, 422, "key-reused")
	b.post(t, other, `{"n":1}`).ran(t, 2, false) // under the new one

	// A secret that was dropped too early is neither a mismatch nor a new run.
	b.rotate(t, z)
	got := b.post(t, key, `{"n":1}`)
	if p := got.refused(t, 503, "record-unreadable"); p.SafeNewKey || !p.Retryable || got.header.Get("Retry-After") == "" {
		t.Errorf("the problem is %+v", p)
	}
	b.rotate(t)
	b.post(t, key, `{"n":1}`).refused(t, 503, "record-unreadable")
	b.ranTimes(t, 2)
}

func TestRecordFromBeforeTheFirstSecretVerifies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(t, key, `{"n":1}`).ran(t, 1, false)
	b.rotate(t, secret(1, "a"))
	b.post(t, key, `{"n":1}`).ran(t, 1, true)
	b.post(t, key, `{"n":2}`).refused(t, 422, "key-reused")
}

func TestFingerprintOfAnotherVersionIsNotGuessedAt(t *testing.T) {
	t.Parallel()
	b := setup(t, withSecrets(secret(1, "a")))
	b.post(t, key, `{"n":1}`).ran(t, 1, false)
	r := b.state(t).Update()
	r.Fingerprint.Alg, r.Owner, r.Overwrite, r.Attempt, r.Term = 3, retrysafe.Owner{1}, true, 2, r.Retain // as a later version would write it
	_, err := b.mem.Swap(t.Context(), r)
	must(t, err)
	b.post(t, key, `{"n":1}`).refused(t, 503, "record-unreadable")
	b.ranTimes(t, 1)
}

func TestFingerprintsOfTenantsDiffer(t *testing.T) {
	t.Parallel()
	sums := func(change ...func(*config)) map[[32]byte]bool {
		b := setup(t, change...)
		b.post(t, key, `{"n":1}`, with("X-Tenant", "acme")).ran(t, 1, false)
		b.post(t, key, `{"n":1}`, with("X-Tenant", "umbrella")).ran(t, 2, false)
		found := map[[32]byte]bool{}
		for _, r := range b.records(t) {
			found[r.Fingerprint.Sum] = true
		}
		return found
	}
	for name, secrets := range map[string][]httpkey.Secret{"plain": nil, "keyed": {secret(1, "a")}} {
		if got := len(sums(withSecrets(secrets...))); got != 2 {
			t.Errorf("%d %s hashes for two tenants, want two: a reader of the store could see that their requests are equal", got, name)
		}
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, bad := range [][]httpkey.Secret{
		{secret(0, "a")}, {secret(16, "a")}, {secret(1, "a"), secret(1, "z")}, {{ID: 1, Key: []byte("short")}},
	} {
		if _, err := b.guard.With(func(o *httpkey.Options) { o.Secrets = bad }); err == nil || !strings.Contains(err.Error(), "Secrets") {
			t.Errorf("Secrets %v: %v", bad, err)
		}
	}
	if _, err := b.guard.With(func(o *httpkey.Options) { o.Secrets = []httpkey.Secret{secret(15, "a"), secret(1, "z")} }); err != nil {
		t.Errorf("the lowest and the highest ID: %v", err)
	}
}
