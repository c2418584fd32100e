package verify_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/internal/test/pages"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// A service sells without keys. It counts what it has sold under each key.
type service struct {
	*httptest.Server
	requests atomic.Int64
	hook     string // the address that webhooks go to

	mu    sync.Mutex
	sold  map[string]int
	count int
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{sold: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	_, _ = io.Copy(io.Discard, r.Body)
	if r.Method == http.MethodGet {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintln(w, s.sold[r.URL.Query().Get("key")])
		return
	}
	switch r.Header.Get("X-Test") {
	case "slow":
		time.Sleep(500 * time.Millisecond)
	case "limit":
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case "fail":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.mu.Lock()
	s.count++
	n := s.count
	s.sold[strings.Trim(r.Header.Get("Idempotency-Key"), `"`)]++
	s.mu.Unlock()
	if s.hook != "" {
		if res, err := http.Post("http://"+s.hook, "application/json", strings.NewReader(fmt.Sprintf(`{"id": "sale_%06d"}`, n))); err == nil {
			_ = res.Body.Close()
		}
	}
	if r.Header.Get("X-Test") == "crash" {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Set-Cookie", fmt.Sprintf("session=%d", n))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("%s/%d", r.URL.Path, n))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id": "sale_%06d"}`, n)
}

// A service without keys is found out, in every format, with exit code 1.
func TestServiceWithoutKeysIsViolated(t *testing.T) {
	t.Parallel()
	s, sh := newService(t), clitest.NewShell(t, "")
	line := []string{"verify", s.URL + "/sales", "--data", `{"amount": 1}`, "--rate", "10000", "--only", "replay,key/missing", "--effects-pointer", "/id"}
	for format, want := range map[string]string{"text": "violated           replay/effect", "json": `"verdict": "violated"`, "junit": "<failure", "html": "<!DOCTYPE html>"} {
		sh.RunArgs(append(line, "--format", format)...).Exits(1).Says(want)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	sh.RunArgs(append(line, "--format", "json", "--output", file)...).Exits(1)
	data, err := os.ReadFile(file)
	clitest.Must(t, err)
	var r conform.Report
	clitest.Must(t, json.Unmarshal(data, &r))
	if r.Operation != "POST /sales" || r.Err() == nil {
		t.Errorf("the file has %s", data)
	}
	// Nothing critical is violated by a missing key that is not asked for.
	sh.RunArgs("verify", s.URL+"/sales", "--data", `{"amount": 1}`, "--rate", "10000", "--only", "key/missing", "--fail-on", "critical").Exits(0)
}

func TestDryRunSendsNothing(t *testing.T) {
	t.Parallel()
	s := newService(t)
	clitest.NewShell(t, "").RunArgs("verify", s.URL+"/sales", "--data", `{"amount": 1}`, "--dry-run", "--run-id", "fixed", "--header", "Authorization: Bearer hunter2").
		Exits(0).Says("replay/bytes: the same request again", "> POST /sales HTTP/1.1", `Idempotency-Key: "conform-fixed-replay-bytes-0"`, "up to 8 times", "requests at most; nothing was sent").Hides("hunter2")
	if n := s.requests.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// What cannot be verified is said in one line, with exit code 2, and nothing is sent.
func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	s := newService(t)
	file := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		clitest.Must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for says, args := range map[string][]string{
		"not a URL of http":                       {"ftp://x"},
		"not a method and a path":                 {s.URL, "--request", "POST"},
		"it has no colon":                         {s.URL, "--header", "nonsense"},
		"--slow \"nonsense\"":                     {s.URL, "--slow", "nonsense"},
		"no such file":                            {s.URL, "--body", "none.json"},
		"not a JSON document":                     {s.URL, "--data", "{"},
		"neither ietf nor stripe":                 {s.URL, "--profile", "none.yaml"},
		"field heder not found":                   {s.URL, "--profile", file("a.yaml", "heder: X\n")},
		"base \"adyen\" is neither":               {s.URL, "--profile", file("b.yaml", "base: adyen\n")},
		"max_key 1: it is 16":                     {s.URL, "--profile", file("c.yaml", "max_key: 1\n")},
		"connection refused":                      {"http://127.0.0.1:1/x"},
		"--i-own-this":                            {"http://192.0.2.1/x"},
		"there is no check":                       {s.URL, "--only", "nonsense"},
		"no certificate in PEM":                   {s.URL, "--ca", file("d.pem", "x")},
		"--openapi none.yaml":                     {s.URL, "--openapi", "none.yaml"},
		"has no operation that changes something": {s.URL, "--openapi", file("e.yaml", "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths: {}\n")},
		"invalid info":                            {s.URL, "--openapi", file("f.yaml", "openapi: 3.0.0\ninfo: {title: x}\npaths: {}\n")},
		"disallowed external reference":           {s.URL, "--openapi", file("g.yaml", "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths: {/a: {post: {requestBody: {$ref: 'other.yaml#/x'}, responses: {default: {description: x}}}}}\n")},
		"POST /orders: amount: a text that matches ^a+$ cannot be made up; give an example": {s.URL, "--openapi", file("h.yaml", strings.NewReplacer("type: integer", "type: string, pattern: '^a+$'", "  /refunds:", "  /orders/{orderId}/refunds:\n    parameters: [{name: orderId, in: path, required: true, schema: {type: string}}]").Replace(flow))},
		"request body: it is not a JSON document":                                           {s.URL, "--body", file("f.json", "amount=1")},
		"other body: it is not a JSON document":                                             {s.URL, "--data", "{}", "--other-body", file("o.json", "[")},
		"neither YAML nor JSON: yaml: line":                                                 {s.URL, "--openapi", file("i.yaml", "openapi: [")},
		"x-none":                                                                            {s.URL, "--openapi", file("j.yaml", strings.Replace(flow, "#/components/schemas/Order", "#/components/schemas/x-none", 1))},
		"directory":                                                                         {s.URL, "--output", filepath.Join(t.TempDir(), "none", "x.html")},
		"--other-body":                                                                      {s.URL, "--other-body", "none.json"},
		"it is one of text, json":                                                           {s.URL, "--format", "pdf"},
		"if any flags in the group [store-down":                                             {s.URL, "--store-down", "true"},
		"if any flags in the group [body data] are":                                         {s.URL, "--body", "x", "--data", "y"},
		"URL is missing":                                                                    {},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			clitest.NewShell(t, "").RunArgs(append([]string{"verify"}, args...)...).Exits(2).Says(says).InOneLine()
		})
	}
	t.Cleanup(func() {
		if n := s.requests.Load(); n > 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

// What only a connection shows is said in one line too, with exit code 2, and nothing is sent:
// no request by a connection that cannot be trusted, and none to the host that a redirect leads
// to.
func TestWrongServers(t *testing.T) {
	t.Parallel()
	s := newService(t)
	silent := log.New(io.Discard, "", 0)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	secure.Config.ErrorLog = silent
	secure.StartTLS()
	t.Cleanup(secure.Close)
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	clitest.Must(t, os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	old := httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	old.Config.ErrorLog = silent
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.StartTLS()
	t.Cleanup(old.Close)
	var redirected atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		redirected.Add(1)
		w.Header().Set("Location", s.URL+r.URL.Path)
		w.WriteHeader(http.StatusPermanentRedirect)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(func() {
		if n := s.requests.Load(); n > 0 {
			t.Errorf("%d requests were sent", n)
		}
		if n := redirected.Load(); n != 1 {
			t.Errorf("%d requests were redirected, want that the first ends the run", n)
		}
	})
	refused := porthold.New(t).Addr()
	for says, args := range map[string][]string{
		"certificate signed by unknown authority; if it is yours, trust": {secure.URL + "/sales"},
		"not localhost":                 {strings.Replace(secure.URL, "127.0.0.1", "localhost", 1) + "/sales", "--ca", trusted},
		"the server does not speak TLS": {strings.Replace(s.URL, "http:", "https:", 1) + "/sales"},
		"protocol version":              {old.URL + "/sales", "--ca", trusted},
		"redirects to another host, " + strings.TrimPrefix(s.URL, "http://"): {front.URL + "/sales"},
		"connection refused": {"http://" + refused + "/sales"},
		"no such host":       {"http://nowhere.invalid/sales", "--i-own-this"},
		refused:              {s.URL + "/sales", "--effects-url", "http://" + refused + "/?key={key}"},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			clitest.NewShell(t, "").RunArgs(append([]string{"verify", "--data", `{"amount": 1}`, "--rate", "10000"}, args...)...).Exits(2).Says(says).InOneLine()
		})
	}
}

const flow = `
openapi: 3.0.3
info: {title: shop, version: "1"}
paths:
  /orders:
    post:
      requestBody: {required: true, content: {application/json: {schema: {$ref: '#/components/schemas/Order'}}}}
      responses: {"201": {description: created}}
    get:
      responses: {"200": {description: list}}
  /orders/{orderId}/payments:
    parameters: [{name: orderId, in: path, required: true, schema: {type: string}}]
    post:
      requestBody: {content: {application/json: {example: {amount: 1200, order_id: none}}}}
      responses: {"201": {description: created}}
  /uploads:
    post:
      requestBody: {required: true, content: {image/png: {schema: {type: string}}}}
      responses: {"201": {description: created}}
  /refunds:
    post:
      requestBody: {content: {application/x-www-form-urlencoded: {example: {payment_id: none, items: [{sku: a}]}}}}
      responses: {"201": {description: created}}
components:
  schemas:
    Order:
      type: object
      required: [amount, lines]
      properties:
        amount: {type: integer, minimum: 5}
        lines: {type: array, items: {type: object, required: [sku], properties: {sku: {type: string, minLength: 12}}}}
        note: {type: string}
`

// A flow whose first step is protected and whose second is not is found by its OpenAPI
// file.
func TestOpenAPIFindsTheUnprotectedStep(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	answers, orders, payments := map[string]string{}, 0, 0
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.URL.Path+" "+string(body))
		key := r.Header.Get("Idempotency-Key")
		w.WriteHeader(http.StatusCreated)
		if r.URL.Path != "/orders" && r.URL.Path != "/refunds" {
			payments++
			fmt.Fprintf(w, `{"id": "payment_%d"}`, payments)
			return
		}
		if answers[key] == "" {
			orders++
			answers[key] = fmt.Sprintf(`{"id": "order_%d"}`, orders)
		} else {
			w.Header().Set("Idempotent-Replayed", "true") // too late, so it is not sent
		}
		_, _ = io.WriteString(w, answers[key])
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "openapi.yaml")
	clitest.Must(t, os.WriteFile(file, []byte(flow), 0o600))
	clitest.NewShell(t, "").RunArgs("verify", server.URL, "--openapi", file, "--only", "coverage", "--rate", "10000").Exits(1).
		Says("POST /orders, profile ietf", "not tested         coverage/POST /uploads    its body is neither JSON nor a form", "violated           coverage/POST /orders/{orderId}/payments  not protected").
		Hides("violated           coverage/POST /orders  ", "set-up failed")
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(bodies, "\n")
	if !strings.Contains(all, `/orders {"amount":5,"lines":[{"sku":"conformxxxxx"}]}`) {
		t.Errorf("no order was made from the schema:\n%s", all)
	}
	if !strings.Contains(all, "/refunds items%5B0%5D%5Bsku%5D=a&payment_id=none") {
		t.Errorf("no form was made:\n%s", all)
	}
	if !strings.Contains(all, `/payments {"amount":1200,"order_id":"order_`) {
		t.Errorf("the payment does not refer to the order:\n%s", all)
	}
}

// Commands that restart the API are run by a shell.
func TestCommandsAreRun(t *testing.T) {
	t.Parallel()
	s, done := newService(t), filepath.Join(t.TempDir(), "done")
	clitest.NewShell(t, "").RunArgs("verify", s.URL+"/sales", "--data", "{}", "--rate", "10000", "--only", "base,restart,store", "--patience", "1s",
		"--restart", "echo a >>"+done, "--store-down", "echo b >>"+done, "--store-up", "echo c >>"+done).Exits(1)
	if _, err := os.Stat(done); err == nil {
		t.Error("commands of checks that depend on a violated one were run")
	}
	guarded := newService(t)
	p := clitest.Start(t, "gateway", "--upstream", guarded.URL, "--tenant", "none", "--listen", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(t.TempDir(), "keys.db"))
	clitest.NewShell(t, "").RunArgs("verify", p.Word("gateway on ")+"/sales", "--data", "{}", "--rate", "10000", "--only", "restart,store",
		"--restart", "echo a >>"+done, "--store-down", "echo b >>"+done+"; false", "--store-up", "echo c >>"+done).Exits(5).Says("could not be made unavailable")
	if data, err := os.ReadFile(done); err != nil || string(data) != "b\na\n" {
		t.Errorf("the commands wrote %q, %v", data, err)
	}
}

// The commands of docs/verify.md are command lines, and its profile is one.
func TestDocsVerify(t *testing.T) {
	t.Parallel()
	page := pages.Read(t, "docs/verify.md")
	for _, block := range pages.Blocks(page, "sh") {
		for line := range strings.Lines(block) {
			args := clitest.Words(t, strings.TrimSpace(line))
			found, rest, err := cli.Root(clitest.NewEnv()).Find(args[1:])
			clitest.Must(t, err)
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	profiles := pages.Blocks(page, "yaml")
	if len(profiles) != 1 {
		t.Fatalf("docs/verify.md has %d profiles", len(profiles))
	}
	file := filepath.Join(t.TempDir(), "house.yaml")
	clitest.Must(t, os.WriteFile(file, []byte(profiles[0]), 0o600))
	clitest.NewShell(t, "").RunArgs("verify", "http://127.0.0.1:1/x", "--data", "{}", "--dry-run", "--profile", file).Exits(0).Says(`X-Idempotency-Key: "c0f0c0f0-`).Hides("key/case")
}

func TestListOfChecks(t *testing.T) {
	t.Parallel()
	clitest.NewShell(t, "").Run("verify --list").Exits(0).Says("replay/bytes", "critical", "IETF draft §2.6")
}
