package demo_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/examples/payments/demo"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

const (
	nodeVariable = "PAYMENTS_TEST_NODE"
	euro         = `{"amount": 1200, "currency": "EUR", "account_id": 1}`
	a, b         = "Bearer demo-a", "Bearer demo-b"
)

// TestMain lets the test be a node, too.
func TestMain(m *testing.M) {
	if os.Getenv(nodeVariable) == "" {
		testservers.Main(m)
		return
	}
	if err := demo.RunNode(context.Background(), os.Stdin, os.Stdout, slog.Default()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func itself(ctx context.Context) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), nodeVariable+"=1")
	cmd.Stderr = io.Discard
	return cmd, nil
}

// program is a running demo.
type program struct {
	t        *testing.T
	nodes    []string // their URLs
	pids     []int
	provider string
	welcome  []string     // what it says one should try
	stop     func() error // ends it as a signal would
}

func start(t *testing.T, store string, nodes int, change ...func(*demo.Options)) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	o := demo.Options{
		Listen: "127.0.0.1:0", Store: store, Nodes: nodes, Node: itself, Out: write, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&o)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- demo.Run(ctx, o)
		write.Close()
	}()
	p := &program{t: t, stop: sync.OnceValue(func() error { cancel(); return <-ended })}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	out := bufio.NewReader(read)
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("it did not start: %v", p.stop())
		}
		words := strings.Fields(strings.Trim(line, "\n"))
		switch {
		case strings.HasPrefix(line, "payments: node"):
			pid, err := strconv.Atoi(strings.Trim(words[6], ")"))
			must(t, err)
			p.nodes, p.pids = append(p.nodes, words[4]), append(p.pids, pid)
		case strings.HasPrefix(line, "payments: provider"):
			p.provider = words[3]
		default:
			p.welcome = append(p.welcome, strings.Trim(line, "\n"))
		}
		if strings.Contains(line, `"none"`) { // the last one
			go io.Copy(io.Discard, out)
			return p
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answer is what a client sees.
type answer struct {
	status   int
	replayed bool
	location string
	body     string
}

// try sends a request, and may fail.
func try(ctx context.Context, method, url, token, key, body string) (got answer, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return got, err
	}
	for name, value := range map[string]string{"Authorization": token, "Idempotency-Key": key, "Content-Type": "application/json"} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return send(r)
}

func send(r *http.Request) (got answer, err error) {
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return got, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", res.Header.Get("Location"), string(body)}, err
}

func (p *program) do(method, url, token, key, body string) answer {
	p.t.Helper()
	got, err := try(p.t.Context(), method, url, token, key, body)
	must(p.t, err)
	return got
}

// post sends a request to the first node.
func (p *program) post(path, token, key, body string) answer {
	p.t.Helper()
	return p.do(http.MethodPost, p.nodes[0]+path, token, key, body)
}

// patience is how long anything may take that is certain to come.
const patience = time.Minute

// until sends a request again and again, as a client does, until it is answered with
// one of these.
func (p *program) until(path, key string, statuses ...int) answer {
	p.t.Helper()
	for end := time.Now().Add(patience); ; {
		got := p.post(path, a, key, euro)
		for _, status := range statuses {
			if got.status == status {
				return got
			}
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s is still answered with %+v", path, got)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *program) fault(body string) {
	p.t.Helper()
	if got := p.do(http.MethodPut, p.provider+"/faults", "", "", body); got.status != http.StatusOK {
		p.t.Fatalf("the fault %s got %+v", body, got)
	}
}

// row is what ledgers have.
type row struct{ ID, Status, Charge, Merchant string }

func (p *program) rows(url, token, key string) (rows []row) {
	p.t.Helper()
	got := p.do(http.MethodGet, url+"/ledger?key="+key, token, "", "")
	if err := json.Unmarshal([]byte(got.body), &rows); err != nil {
		p.t.Fatalf("the ledger is %q: %v", got.body, err)
	}
	return rows
}

// charged returns what the provider has charged under a key.
func (p *program) charged(key string) []row { p.t.Helper(); return p.rows(p.provider, "", key) }

// once fails the test unless one effect is in our tables under the key, and the
// provider has charged it once.
func (p *program) once(key string) {
	p.t.Helper()
	ours, theirs := p.rows(p.nodes[len(p.nodes)-1], a, key), p.charged(key)
	if len(ours) != 1 || len(theirs) != 1 || ours[0].Status != "succeeded" || ours[0].Charge != theirs[0].ID {
		p.t.Errorf("key %s: our tables have %+v, the provider has %+v; want one charge in each", key, ours, theirs)
	}
}
