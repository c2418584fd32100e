package httpkey_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/httpkey"
)

func TestW1_MissingKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, m := range []string{http.MethodPost, http.MethodPatch} {
		b := setup(t)
		got := b.post(t, "", `{"a":1}`, method(m))
		p := got.refused(t, 400, "key-missing")
		if p.Code != "key-missing" || p.Status != 400 || p.Retryable || !p.SafeNewKey || p.Detail == "" ||
			p.Title != "Idempotency-Key is missing" || !strings.HasSuffix(p.Type, "/docs/problems/key-missing.md") {
			t.Errorf("%s: the problem is %+v", m, p)
		}
		want := map[string]string{
			"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Content-Language": "en",
			"Link": "<" + p.Type + `>; rel="describedby"`, "Content-Length": fmt.Sprint(len(got.body)),
		}
		for name, value := range want {
			if got.header.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", m, name, got.header.Get(name), value)
			}
		}
		if _, ok := got.header["Retry-After"]; ok {
			t.Errorf("%s: told to come back with the same mistake", m)
		}
		b.untouched(t)
	}
}

func TestOptionalKeyMayBeMissing(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Optional = true })
	b.post(t, "", `{}`).ran(t, 1, false)
	b.post(t, "", `{}`).ran(t, 2, false)
	if all := b.records(t); len(all) != 0 {
		t.Errorf("%d records of requests without a key", len(all))
	}
	b.post(t, key, `{}`).ran(t, 3, false)
	b.post(t, key, `{}`).ran(t, 3, true)
	b.post(t, "a,b", `{}`).refused(t, 400, "key-malformed")
}

func TestW2_JunkInTheHeaderIsRefused(t *testing.T) {
	t.Parallel()
	s := strings.Repeat("k", 20)
	for name, lines := range map[string][]string{
		"two lines":              {s, s},
		"two different lines":    {s, s + "2"},
		"comma list":             {s + ", " + s},
		"quoted list":            {`"` + s + `", "` + s + `"`},
		"empty":                  {""},
		"blank":                  {" \t "},
		"empty string":           {`""`},
		"open quote":             {`"` + s},
		"lone quote":             {`"`},
		"closing quote only":     {s + `"`},
		"text behind the quotes": {`"` + s + `"x`},
		"parameter":              {`"` + s + `";a=1`},
		"unknown escape":         {`"` + s + `\n"`},
		"escape of nothing":      {`"` + s + `\"`},
		"quote inside":           {`"a"` + s + `"`},
		"space inside":           {s + " " + s},
		"token with quotes":      {`a"b"` + s},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.post(t, "", `{}`, func(r *http.Request) { r.Header["Idempotency-Key"] = lines }).refused(t, 400, "key-malformed")
			if p.Retryable || !p.SafeNewKey {
				t.Errorf("the problem is %+v", p)
			}
			b.untouched(t)
		})
	}
}

func TestW2_FoldedLineIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := talk(t, b.serve(t), "POST /payments HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: aaaaaaaaaaaaaaaa\r\n bbbbbbbbbbbbbbbb\r\nContent-Length: 2\r\n\r\n{}")
	if len(got) != 1 || got[0].status != 400 {
		t.Fatalf("got %+v, want one 400", got)
	}
	b.untouched(t)
}

func TestW3_KeysHave255CharactersAtMost(t *testing.T) {
	t.Parallel()
	for _, p := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
		b := setup(t, isProfile(p))
		b.post(t, strings.Repeat("k", 256), `{}`).refused(t, 400, "key-malformed")
		b.untouched(t)
		longest := strings.Repeat("k", 255)
		b.post(t, longest, `{}`).ran(t, 1, false)
		if p.Opaque {
			continue
		}
		// The quotes and the escapes are not part of the key.
		b.post(t, `"`+longest+`"`, `{}`).ran(t, 1, true)
		b.post(t, `"`+longest+`k"`, `{}`).refused(t, 400, "key-malformed")
		b.post(t, `"`+strings.Repeat(`\\`, 255)+`"`, `{}`).ran(t, 2, false)
		b.post(t, `"`+strings.Repeat(`\\`, 256)+`"`, `{}`).refused(t, 400, "key-malformed")
	}
}

func TestW3_HugeKeysAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.serve(t)
	if got := send(t, s, strings.Repeat("k", 500_000), `{}`); got.status != 400 {
		t.Errorf("half a megabyte of key: %d", got.status)
	}
	got := talk(t, s, "POST /payments HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: "+strings.Repeat("k", 2<<20)+"\r\nContent-Length: 0\r\n\r\n")
	for _, r := range got { // the server may close before it was heard
		if r.status != 400 && r.status != 431 {
			t.Errorf("two megabytes of key: %d", r.status)
		}
	}
	b.untouched(t)
}

// What the server itself lets through must not reach a store that cannot keep
// it, nor be an internal error.
func TestW4_BytesThatAreNotVisibleASCIIAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.serve(t)
	for _, bad := range []string{"\x00", "\x01", "\x1f", "\x7f", "\t", "\x80", "\xff", "é", "\xc3\x28", " ", "\u202e"} {
		for _, form := range []string{"kkkkkkkk%skkkkkkkk", `"kkkkkkkk%skkkkkkkk"`} {
			if bad == " " && form[0] == '"' {
				continue // a quoted space is as good as any character
			}
			k := fmt.Sprintf(form, bad)
			got := talk(t, s, "POST /payments HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: "+k+"\r\nContent-Length: 2\r\n\r\n{}")
			if len(got) != 1 || got[0].status != 400 {
				t.Errorf("%q: got %+v, want one 400", k, got)
			}
		}
	}
	b.untouched(t)
}

func TestW4_QuotedAndBareAreTheSameKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(t, "k", `{}`).ran(t, 1, false)
	for _, same := range []string{"k", `"k"`, ` k `, "\tk", ` "k" `} {
		b.post(t, same, `{}`).ran(t, 1, true)
	}
	b.post(t, "K", `{}`).ran(t, 2, false)
	b.post(t, `"k "`, `{}`).ran(t, 3, false)
	b.post(t, `'k'`, `{}`).ran(t, 4, false)
	b.post(t, `a\b`, `{}`).ran(t, 5, false)
	b.post(t, `"a\\b"`, `{}`).ran(t, 5, true)
	b.post(t, `"a\"b"`, `{}`).ran(t, 6, false)
	if got, want := len(b.records(t)), 6; got != want {
		t.Errorf("%d records, want %d", got, want)
	}
}

func TestOpaqueKeysKeepTheirQuotes(t *testing.T) {
	t.Parallel()
	b := setup(t, isProfile(httpkey.Stripe))
	b.post(t, "k", `{}`).ran(t, 1, false)
	b.post(t, `"k"`, `{}`).ran(t, 2, false)
	b.post(t, `"k`, `{}`).ran(t, 3, false)
	b.post(t, "K", `{}`).ran(t, 4, false)
	for _, bad := range []string{"a b", "a,b", "", "\xff"} {
		b.post(t, "", `{}`, func(r *http.Request) { r.Header["Idempotency-Key"] = []string{bad} }).refused(t, 400, "key-malformed")
	}
}

func TestStrictWantsQuotes(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Strict = true })
	b.post(t, "k", `{}`).refused(t, 400, "key-malformed")
	b.untouched(t)
	b.post(t, `"k"`, `{}`).ran(t, 1, false)
}

func TestKeyHasTheHeaderThatTheOptionsName(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Header = "x-request-token" })
	b.post(t, key, `{}`).refused(t, 400, "key-missing")
	b.post(t, "", `{}`, with("X-Request-Token", key)).ran(t, 1, false)
	b.post(t, "", `{}`, with("X-Request-Token", key)).ran(t, 1, true)
}

func TestW9_OtherMethodsPassUntouched(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, m := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete} {
		for _, k := range []string{key, ""} {
			got := b.post(t, k, "", method(m))
			if got.status != http.StatusCreated || got.header.Get("Idempotency-Expires") != "" {
				t.Errorf("%s: got %d %v", m, got.status, got.header)
			}
		}
		b.ranTimes(t, 2*(i+1))
	}
	b.runs.Store(0)
	b.untouched(t)
}

func TestW9_RouteMayGuardOtherMethods(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Methods = []string{"put", http.MethodDelete} })
	b.post(t, "", `{}`, method(http.MethodPut)).refused(t, 400, "key-missing")
	b.post(t, "", `{}`, method(http.MethodPost)).ran(t, 1, false)
	b.post(t, key, `{}`, method(http.MethodPut)).ran(t, 2, false)
	b.post(t, key, `{}`, method(http.MethodPut)).ran(t, 2, true)
	b.post(t, key, `{}`, method(http.MethodDelete)).refused(t, 422, "key-reused")
}

func TestW9_MethodOverrideIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		b := setup(t)
		b.post(t, key, `{}`, with(name, "DELETE")).refused(t, 400, "method-override")
		b.post(t, "", `{}`, with(name, "GET")).refused(t, 400, "method-override")
		b.post(t, "", "", method(http.MethodGet), with(name, " post ")).refused(t, 400, "method-override")
		for _, list := range []string{"POST , GET", "GET, post", `"PATCH"`} { // handlers may take one of them
			b.post(t, "", "", method(http.MethodGet), with(name, list)).refused(t, 400, "method-override")
		}
		b.post(t, "", "", method("post")).refused(t, 400, "method-override") // handlers may not care for case
		b.untouched(t)
		b.post(t, "", "", method(http.MethodGet), with(name, "PUT")).ran(t, 1, false)
	}
}
