package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	main "github.com/retrysafe/retrysafe/examples/quickstart"
)

const (
	key  = `"8e03978e-40d5-43dd-bc93-6894a57f9324"`
	euro = `{"amount": 1200, "currency": "EUR"}`
)

// program is a running quickstart.
type program struct {
	t    *testing.T
	base string
	stop func() int // ends it as a signal would, and returns its exit code
}

func start(t *testing.T) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	exit := make(chan int, 1)
	go func() {
		exit <- main.Run(ctx, []string{"-listen", "127.0.0.1:0"}, write, t.Output())
		write.Close()
	}()
	out := bufio.NewReader(read)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("it printed no address: %v", err)
	}
	go io.Copy(io.Discard, out)
	p := &program{t: t, base: strings.Fields(line)[3], stop: sync.OnceValue(func() int { cancel(); return <-exit })}
	t.Cleanup(func() { p.stop() })
	return p
}

// answer is what a client sees.
type answer struct {
	status   int
	replayed bool
	location string
	body     string
}

func (p *program) do(method, path, token, key, body string) answer {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.base+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": token, "Idempotency-Key": key, "Content-Type": "application/json"} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", res.Header.Get("Location"), string(got)}
}

func (p *program) pay(token, key, body string) answer {
	p.t.Helper()
	return p.do(http.MethodPost, "/payments", token, key, body)
}

// rows counts what was charged under key for the caller of token.
func (p *program) rows(token string) int {
	p.t.Helper()
	got := p.do(http.MethodGet, "/ledger?key="+strings.Trim(key, `"`), token, "", "")
	var rows []json.RawMessage
	if err := json.Unmarshal([]byte(got.body), &rows); err != nil {
		p.t.Fatalf("ledger is %q: %v", got.body, err)
	}
	return len(rows)
}

func TestManyRequestsOneCharge(t *testing.T) {
	t.Parallel()
	p := start(t)
	first := p.pay("Bearer demo-a", key, euro)
	if first.status != http.StatusCreated || first.replayed || first.location == "" {
		t.Fatalf("the first request got %+v, want a fresh 201 with a Location", first)
	}
	for name, retry := range map[string]answer{
		"a retry":                       p.pay("Bearer demo-a", key, euro),
		"a retry with a bare key":       p.pay("Bearer demo-a", strings.Trim(key, `"`), euro),
		"a retry with members reversed": p.pay("Bearer demo-a", key, `{"currency":"EUR","amount":1200.0}`),
	} {
		want := first
		want.replayed = true
		if retry != want {
			t.Errorf("%s got %+v, want %+v", name, retry, want)
		}
	}
	if other := p.pay("Bearer demo-a", key, `{"amount": 9900, "currency": "EUR"}`); other.status != http.StatusUnprocessableEntity {
		t.Errorf("another amount under the same key got %+v, want 422", other)
	}
	if n := p.rows("Bearer demo-a"); n != 1 {
		t.Errorf("%d charges are in the ledger, want 1", n)
	}
	if got := p.do(http.MethodGet, first.location, "Bearer demo-a", "", ""); got.body != first.body {
		t.Errorf("%s is %+v, want %q", first.location, got, first.body)
	}
}

func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	p := start(t)
	a := p.pay("Bearer demo-a", key, euro)
	b := p.pay("Bearer demo-b", key, euro)
	if b.status != http.StatusCreated || b.replayed || b.body == a.body {
		t.Errorf("the same key of another tenant got %+v, want a payment of its own", b)
	}
	if got := p.do(http.MethodGet, a.location, "Bearer demo-b", "", ""); got.status != http.StatusNotFound {
		t.Errorf("another tenant's payment is %+v, want 404", got)
	}
	if n := p.rows("Bearer demo-b"); n != 1 {
		t.Errorf("tenant b has %d charges, want 1", n)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	p := start(t)
	for _, c := range []struct {
		name, token, key, body string
		want                   int
	}{
		{"nobody", "", key, euro, http.StatusUnauthorized},
		{"a stranger", "Bearer demo-c", key, euro, http.StatusUnauthorized},
		{"no scheme", "demo-a", key, euro, http.StatusUnauthorized},
		{"no key", "Bearer demo-a", "", euro, http.StatusBadRequest},
		{"no amount", "Bearer demo-a", `"no-amount-0123456789"`, `{"currency": "EUR"}`, http.StatusBadRequest},
		{"a currency that is none", "Bearer demo-a", `"no-currency-0123456789"`, `{"amount": 1, "currency": "gold"}`, http.StatusBadRequest},
		{"an unknown member", "Bearer demo-a", `"unknown-0123456789"`, `{"amount": 1, "currency": "EUR", "tip": 1}`, http.StatusBadRequest},
		{"no JSON", "Bearer demo-a", `"no-json-0123456789"`, `amount=1200`, http.StatusBadRequest},
	} {
		if got := p.pay(c.token, c.key, c.body); got.status != c.want {
			t.Errorf("%s got %+v, want %d", c.name, got, c.want)
		}
	}
	if got := p.do(http.MethodGet, "/payments/pay_9", "Bearer demo-a", "", ""); got.status != http.StatusNotFound {
		t.Errorf("a payment that is none got %+v, want 404", got)
	}
	if n := p.rows("Bearer demo-a"); n != 0 {
		t.Errorf("refused requests made %d charges", n)
	}
}

func TestSignalEndsItInOrder(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.pay("Bearer demo-a", key, euro)
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-listen " + busy.Addr().String(), 1, "address already in use"},
		{"-port 80", 2, "-port"},
		{"-listen 8080", 2, "missing port"},
		{"8080", 2, "too many"},
	} {
		var stdout, stderr strings.Builder
		code := main.Run(t.Context(), strings.Fields(c.args), &stdout, &stderr)
		if code != c.code || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), c.says) || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %d and one line about %q", c.args, code, &stdout, &stderr, c.code, c.says)
		}
	}
	var stdout, stderr strings.Builder
	if code := main.Run(t.Context(), []string{"-h"}, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), "usage:") {
		t.Errorf("-h: exit code %d, stdout %q, stderr %q", code, &stdout, &stderr)
	}
}
