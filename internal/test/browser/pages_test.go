package browser_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

// every returns all pages of a furnished site, by name.
func (s *site) every() map[string]string {
	stuck := s.put(retrysafe.StateUnknown, "acme", "stuck-payment-0001", "POST /payments", "the handler answered 502", 0)
	s.act(s.service.Redrive(s.t.Context(), s.seen(stuck, "ben", "the provider answers again")))
	return map[string]string{
		"overview": "/", "keys": "/keys", "keys filtered": "/keys?state=unknown&operation=POST+%2Fcharges", "search": "/search?q=order-1&stay=1", "search nothing": "/search?q=no-such-key",
		"key": "/key?scope=acme&key=stuck-payment-0001", "key completed": "/key?scope=tenant-1&key=done-001", "key disputed": "/key?scope=initech&key=refund-77",
		"key running": "/key?scope=acme&key=running-3", "batch": "/keys/batch?state=unknown&operation=POST+%2Fcharges", "outbox": "/outbox", "letter": "/outbox/letters/1",
		"reconciliation": "/reconciliation", "audit": "/audit", "ledgers": "/ledgers", "proof": "/proof", "configuration": "/configuration", "missing": "/nothing-here",
	}
}

func TestEveryPageIsAccessibleInBothThemesAndOnAPhone(t *testing.T) {
	t.Parallel()
	s := open(t, "/retrysafe")
	s.furnish()
	b := s.newTab(t)
	b.open("/")
	b.accessible("login", `resultTypes: ["violations"]`)
	b.picture("login")
	b.login(anna)
	b.theme("light")
	b.waitFor(".needs h2", "need you")
	b.view("console") // docs/console.png
	for name, path := range s.every() {
		b.theme("light")
		b.do(chromedp.EmulateViewport(1360, 900))
		b.open(path)
		b.accessible(name+", light", `resultTypes: ["violations"]`)
		b.picture(slug(name) + "-light")
		b.theme("dark") // the page stays, and its colours change
		b.accessible(name+", dark", `runOnly: ["color-contrast"]`)
		b.picture(slug(name) + "-dark")
		b.do(chromedp.EmulateViewport(390, 844))
		b.accessible(name+", phone", `resultTypes: ["violations"]`)
		b.picture(slug(name) + "-phone")
		if wide := evaluate[int](b, "document.documentElement.scrollWidth"); wide > 390 {
			t.Errorf("%s is %d wide on a phone of 390", name, wide)
		}
	}
}

func TestStuckKeyIsFoundResolvedAndReplayed(t *testing.T) {
	t.Parallel()
	s := open(t, "/retrysafe")
	if status, _, _ := s.pay("stuck-1"); status != 500 {
		t.Fatalf("the first request got %d", status)
	}
	if status, _, _ := s.pay("stuck-1"); status != 409 {
		t.Fatalf("a retry of an unknown outcome got %d, want 409", status)
	}
	b := s.newTab(t)
	b.open("/key?scope=acme&key=stuck-1") // where a login leads back to
	b.typed("input[name=token]", "a wrong token of some length")
	b.click("form[action$='/login'] button")
	b.waitFor(".note", "The token is wrong")
	b.login(anna)
	b.waitFor(".needs h2", "1 key needs you")
	b.waitFor(".group h3", "POST /payments")
	b.waitFor(".group .why", "the service answered 500")
	b.typed("#q", retrysafe.HashKey("stuck-1"))
	b.click(".search button")
	b.waitFor("#found", "stuck-1")
	b.click("#found .key")
	b.waitFor(".gets", "409")
	form := "form[action*='/act/resolve']"
	b.click("details:has(" + form + ") summary")
	b.do(chromedp.SetValue(chromedp.CSS(form+" textarea"), `{"id":"pay_1","cents":9007199254740993}`))
	b.typed(form+" input[name=why]", "pay_1 is in the provider's dashboard")
	b.click(form + " button[type=submit]")
	b.waitFor(".note.ok", "The record is completed now")
	b.waitFor(".timeline", "operator anna")
	b.waitFor(".gets", "the stored 201")
	status, body, replayed := s.pay("stuck-1")
	if status != 201 || body != `{"id":"pay_1","cents":9007199254740993}` || !replayed {
		t.Errorf("a retry got %d %s, replayed %v", status, body, replayed)
	}
	if evaluate[bool](b, `document.body.innerText.includes("pay_1\",")`) {
		t.Error("the page shows the answer although it was not asked for")
	}
	b.typed("form[action*=reveal] input[name=why]", "the client asks for it")
	b.click("form[action*=reveal] button")
	b.waitFor(".content", "9007199254740993")
	b.open("/audit")
	b.waitFor("tbody", "reveal")
	b.open("/")
	b.waitFor(".needs h2", "Nothing needs you")
	b.click("form[action$='/logout'] button")
	b.do(chromedp.WaitVisible(chromedp.CSS("input[name=token]")))
	b.open("/keys")
	b.do(chromedp.WaitVisible(chromedp.CSS("input[name=token]")))
}

func TestBatchReleasesAThousandKeysWithProgress(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	for i := range 1000 {
		s.put(retrysafe.StateUnknown, "acme", fmt.Sprintf("payment-%04d", i), "POST /payments", "the handler answered 502", time.Hour)
	}
	s.put(retrysafe.StateUnknown, "acme", "another", "POST /refunds", "the handler answered 502", time.Hour)
	b := s.newTab(t)
	b.login(anna)
	b.waitFor(".group .big", "1,000")
	b.click(".group .go a")
	b.typed("input[name=why]", "the provider was down, and has none of them")
	b.typed("input[name=rate]", "800") // slow enough for the progress to be seen
	b.click("input[name=verb][value=release]")
	b.click("form[action*=preview] button")
	b.waitFor("h2", "1,000 keys would be changed")
	b.click("input[name=confirm]")
	b.click("form[action*=apply] button.danger")
	b.waitFor("#live-batch h2", "At work")
	b.picture("progress-light")
	b.waitFor("#live-batch h2", "Done: 1,000 of 1,000")
	b.open("/")
	b.waitFor(".needs h2", "1 key needs you")
	b.open("/audit")
	b.waitFor("tbody", "1,000 of 1,000 done")
	page, err := s.service.Groups(t.Context(), operator.Filter{Operation: "POST /payments"})
	must(t, err)
	if len(page) != 0 {
		t.Errorf("%d groups of payments are left", len(page))
	}
}

func TestOfTwoOperatorsOneWinsAndTheOtherIsTold(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops/retrysafe")
	r := s.put(retrysafe.StateUnknown, "acme", "contested", "POST /payments", "lease lapsed", time.Hour)
	first, second := s.newTab(t), s.newTab(t)
	first.login(anna)
	second.login(ben)
	for _, b := range []*tab{first, second} {
		b.open("/key?scope=acme&key=contested")
	}
	first.settle("release", "the provider has no such payment")
	first.waitFor(".note.ok", "The record is retryable now")
	second.waitFor("[data-moved]", "has changed since you opened the page")
	second.settle("resolve", "pay_9 is in the dashboard")
	second.waitFor(".note.warn", "the record has changed since you saw it")
	second.waitFor(".note.warn", "operator anna")
	second.picture("conflict-light")
	if now := s.load(r.Ref); now.State != retrysafe.StateRetryable {
		t.Errorf("the record is %s", now.State)
	}
	second.open("/audit")
	second.waitFor("tbody tr:nth-child(1)", "refused")
	second.waitFor("tbody tr:nth-child(1)", "ben")
	second.waitFor("tbody tr:nth-child(2)", "done")
	second.waitFor("tbody tr:nth-child(2)", "anna")
}

func TestHostileTextIsInert(t *testing.T) {
	t.Parallel()
	s := open(t, "/retrysafe")
	const script, escape, formula = `<script>document.title="owned"</script><img src=x onerror="document.title='owned'">`, "\x1b[31mred\x1b[0m\u202e", `=HYPERLINK("http://evil","x")`
	key := `"'><svg/onload=alert(1)>` + escape + formula
	r := s.put(retrysafe.StateUnknown, "acme\xff", key, "POST /"+script, script+escape+formula, time.Hour)
	s.act(s.service.Resolve(t.Context(), s.seen(r, "ben", script), retrysafe.Result{Status: 201, Header: map[string][]string{"X-" + formula: {script}}, Body: []byte(script + escape)}))
	s.put(retrysafe.StateUnknown, script, key+"2", script, script, time.Hour)
	b := s.newTab(t)
	b.login(anna)
	at := "/key?" + url.Values{"scope": {"acme\xff"}, "key": {key}}.Encode()
	for _, path := range []string{"/", "/keys", "/keys?reason=" + url.QueryEscape(script), "/search?q=" + url.QueryEscape(script), "/audit?by=" + url.QueryEscape(script), "/audit", "/reconciliation", at} {
		b.open(path)
		if title := evaluate[string](b, "document.title"); strings.Contains(title, "owned") {
			t.Errorf("%s ran a script", path)
		}
		if n := evaluate[int](b, `document.querySelectorAll("main script, main img, main svg[onload], [onerror], [onload]").length`); n > 0 {
			t.Errorf("%s has %d elements that a text brought", path, n)
		}
		if evaluate[bool](b, `/[\u001b\u202e\ufffd]/.test(document.body.innerText)`) {
			t.Errorf("%s shows a control character as it is", path)
		}
	}
	b.typed("form[action*=reveal] input[name=why]", "=1+1")
	b.click("form[action*=reveal] button")
	b.waitFor(".content pre", "<script>")
	if evaluate[bool](b, `document.title.includes("owned") || document.querySelectorAll("main script, main img").length > 0`) {
		t.Error("a body ran as a script")
	}
	b.picture("hostile-light")
}

func TestConsoleWorksWithoutScriptOnASlowNetwork(t *testing.T) {
	t.Parallel()
	s := open(t, "/a/prefix")
	s.latency = 300 * time.Millisecond
	s.put(retrysafe.StateUnknown, "acme", "slow-1", "POST /payments", "lease lapsed", time.Hour)
	b := s.newTab(t)
	b.withoutScript()
	b.login(anna)
	b.waitFor(".needs h2", "1 key needs you")
	b.click(".group h3 a")
	b.waitFor("tbody", "slow-1")
	b.click("tbody .key")
	b.settle("redrive", "the provider answers again")
	b.waitFor(".note.ok", "Done")
	b.click(".themes button[value=dark]")
	b.waitFor("html[data-theme=dark] h1", "slow-1")
}

func TestRequestsWithoutATokenOrFromAnotherSiteAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, "/retrysafe")
	r := s.put(retrysafe.StateUnknown, "acme", "guarded", "POST /payments", "lease lapsed", time.Hour)
	form := url.Values{"id": {"one"}, "revision": {fmt.Sprint(r.Revision)}, "why": {"x"}, "confirm": {"yes"}}
	send := func(method, path, token, origin string) *http.Response {
		q, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(form.Encode()))
		must(t, err)
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		if origin != "" {
			q.Header.Set("Sec-Fetch-Site", origin)
		}
		answer, err := http.DefaultClient.Do(q)
		must(t, err)
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	const release = "/key/act/release?scope=acme&key=guarded"
	for name, c := range map[string]struct {
		method, path, token, origin string
		want                        int
	}{
		"a page without a token":        {http.MethodGet, "/keys", "", "", http.StatusUnauthorized},
		"an unknown page without one":   {http.MethodGet, "/no-such-page", "", "", http.StatusUnauthorized},
		"an action without a token":     {http.MethodPost, release, "", "", http.StatusUnauthorized},
		"an action from another site":   {http.MethodPost, release, anna, "cross-site", http.StatusForbidden},
		"an action of a reader":         {http.MethodPost, release, rita, "same-origin", http.StatusForbidden},
		"a look of a reader at content": {http.MethodPost, "/key/reveal?scope=acme&key=guarded", rita, "same-origin", http.StatusForbidden},
		"a page of a reader":            {http.MethodGet, "/key?scope=acme&key=guarded", rita, "", http.StatusOK},
	} {
		answer := send(c.method, c.path, c.token, c.origin)
		if answer.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, answer.StatusCode, c.want)
		}
		policy := answer.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") || answer.Header.Get("X-Frame-Options") != "DENY" || answer.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", name, answer.Header)
		}
	}
	if now := s.load(r.Ref); now.Revision != r.Revision {
		t.Errorf("a refused request changed the record: it is %s", now.State)
	}
}
