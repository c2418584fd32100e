package httpkey_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/httpkey"
)

// choose puts another guard, with another choice of fields, before the same store.
func (b *bundle) choose(t *testing.T, now httpkey.Fields, former ...httpkey.Fields) {
	t.Helper()
	g, err := b.guard.With(func(o *httpkey.Options) {
		o.Include, o.Exclude, o.FingerprintHeaders, o.FormerFields = now.Include, now.Exclude, now.Headers, former
	})
	must(t, err)
	b.Handler = g.Handler(b.counted(b.created))
}

// A record names the choice that it was stored under, and a retry is compared by that
// one: a changed list of fields turns no retry of a live key into a mismatch, and no
// different request into a retry.
func TestFormerFieldsStillVerify(t *testing.T) {
	t.Parallel()
	none, withoutTime := httpkey.Fields{}, httpkey.Fields{Exclude: []string{"/sent_at"}}
	onlyAmount := httpkey.Fields{Include: []string{"/amount"}, Headers: []string{"api-version"}}
	for name, secrets := range map[string][]httpkey.Secret{"plain": nil, "keyed": {secret(1, "a")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withSecrets(secrets...))
			b.post(t, key, `{"amount":1,"sent_at":1}`).ran(t, 1, false)

			b.choose(t, withoutTime) // what was stored without a choice needs none to be listed
			b.post(t, key, `{"amount":1,"sent_at":1}`).ran(t, 1, true)
			b.post(t, key, `{"amount":1,"sent_at":2}`).refused(t, 422, "key-reused")
			b.post(t, key, `{"amount":1}`).refused(t, 422, "key-reused")
			b.post(t, other, `{"amount":1,"sent_at":1}`).ran(t, 2, false)
			b.post(t, other, `{"amount":1,"sent_at":2}`).ran(t, 2, true)

			b.choose(t, onlyAmount, withoutTime)
			b.post(t, key, `{"amount":1,"sent_at":1}`).ran(t, 1, true)
			b.post(t, other, `{"amount":1,"sent_at":3}`).ran(t, 2, true)
			b.post(t, other, `{"amount":1,"sent_at":3,"to":"b"}`).refused(t, 422, "key-reused")

			b.choose(t, none, onlyAmount, withoutTime)
			b.post(t, other, `{"sent_at":4,"amount":1}`).ran(t, 2, true)
			b.post(t, other, `{"amount":2}`).refused(t, 422, "key-reused")
			b.ranTimes(t, 2)
		})
	}
}

// A choice that the guard does not know is neither a mismatch nor a new run: another node
// may know it.
func TestUnknownFieldsAreNotGuessedAt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.choose(t, httpkey.Fields{Exclude: []string{"/a"}})
	b.post(t, key, `{"a":1,"b":2}`).ran(t, 1, false)
	for _, now := range []httpkey.Fields{{}, {Exclude: []string{"/b"}}, {Exclude: []string{"/a"}, Headers: []string{"Prefer"}}} {
		b.choose(t, now)
		b.post(t, key, `{"a":1,"b":2}`).refused(t, 503, "record-unreadable")
		b.post(t, key, `{"b":3}`).refused(t, 503, "record-unreadable")
	}
	b.ranTimes(t, 1)
}

// The order of a list, and what is in it twice, do not matter.
func TestFieldsHaveNoOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.choose(t, httpkey.Fields{Include: []string{"/a", "/b"}, Exclude: []string{"/b/x", "/a/x"}, Headers: []string{"prefer", "Api-Version"}})
	b.post(t, key, `{"a":1,"c":2}`).ran(t, 1, false)
	b.choose(t, httpkey.Fields{Include: []string{"/b", "/a", "/b"}, Exclude: []string{"/a/x", "/b/x"}, Headers: []string{"API-version", "Prefer", "Prefer"}})
	b.post(t, key, `{"a":1,"c":3}`).ran(t, 1, true)
}

// A choice of headers alone is a choice: a record names it.
func TestFormerHeadersStillVerify(t *testing.T) {
	t.Parallel()
	b := setup(t)
	headers := httpkey.Fields{Headers: []string{"Api-Version"}}
	b.choose(t, headers)
	b.post(t, key, `{}`, with("Api-Version", "1")).ran(t, 1, false)
	b.choose(t, httpkey.Fields{})
	b.post(t, key, `{}`, with("Api-Version", "1")).refused(t, 503, "record-unreadable")
	b.choose(t, httpkey.Fields{}, headers)
	b.post(t, key, `{}`, with("Api-Version", "1")).ran(t, 1, true)
	b.post(t, key, `{}`, with("Api-Version", "2")).refused(t, 422, "key-reused")
	b.ranTimes(t, 1)
}

func TestFormerFieldsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.guard.With(func(o *httpkey.Options) { o.FormerFields = []httpkey.Fields{{Include: []string{"amount"}}} })
	if err == nil || !strings.Contains(err.Error(), "FormerFields") {
		t.Errorf("a pointer without a slash: %v", err)
	}
}
