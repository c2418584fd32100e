// Package rpc_test runs the examples as programs: replay, mismatch, duplicates, errors,
// kill -9 and retry, in each guarantee class.
package rpc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/retrysafe/retrysafe/examples/rpc/payv1"
	"github.com/retrysafe/retrysafe/examples/rpc/payv1/payv1connect"
	"github.com/retrysafe/retrysafe/examples/rpc/shop"
)

const key = "8e03978e-40d5-43dd-bc93-6894a57f9324"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// provider is the other side: it charges once for each key, and sends a mail for each
// request. It can be told to hold its answers.
type provider struct {
	*httptest.Server
	mu      sync.Mutex
	charges map[string]int
	mails   int
	held    chan struct{} // not nil: says that an effect has happened, and does not answer
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{charges: map[string]int{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // net/http notices that a client has gone when the body is read
	p.mu.Lock()
	id := r.Header.Get("Idempotency-Key")
	if r.URL.Path == "/charges" {
		p.charges[id]++
	} else {
		p.mails++
		id = fmt.Sprint("mail ", p.mails)
	}
	held := p.held
	p.mu.Unlock()
	if held != nil {
		held <- struct{}{}
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, id)
}

func (p *provider) hold(held chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
}

// effects returns how many charges and mails there were.
func (p *provider) effects() (charges, mails int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.charges), p.mails
}

// program is a running example.
type program struct {
	call func(t *testing.T, method, key string, amount int64) result
	kill func()
}

// result is what a client sees.
type result struct {
	id, text string
	code     codes.Code
	replayed bool
}

// built is where TestMain has built the programs.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "retrysafe-rpc")
	if err != nil {
		log.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", dir, "./grpc", "./connect").CombinedOutput(); err != nil {
		log.Fatalf("%v: %s", err, out)
	}
	built = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// start starts an example over a file.
func start(t *testing.T, name, file, provider string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(built, name), file, provider, "127.0.0.1:0")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var once sync.Once
	p := &program{kill: func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}}
	t.Cleanup(p.kill)
	addr, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	addr = strings.TrimSpace(addr)
	if name == "grpc" {
		p.call = dialGRPC(t, addr)
	} else {
		p.call = dialConnect(t, addr)
	}
	return p
}

func dialGRPC(t *testing.T, addr string) func(*testing.T, string, string, int64) result {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	c := payv1.NewPayServiceClient(conn)
	methods := map[string]func(context.Context, *payv1.Order, ...grpc.CallOption) (*payv1.Receipt, error){"book": c.Book, "charge": c.Charge, "mail": c.Mail}
	return func(t *testing.T, method, key string, amount int64) result {
		var header metadata.MD
		res, err := methods[method](metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", key), &payv1.Order{Amount: amount}, grpc.Header(&header))
		s := status.Convert(err)
		return result{res.GetId(), s.Message(), s.Code(), slices.Equal(header.Get("idempotent-replayed"), []string{"true"})}
	}
}

func dialConnect(t *testing.T, addr string) func(*testing.T, string, string, int64) result {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(h.CloseIdleConnections)
	c := payv1connect.NewPayServiceClient(h, "http://"+addr)
	methods := map[string]func(context.Context, *connect.Request[payv1.Order]) (*connect.Response[payv1.Receipt], error){"book": c.Book, "charge": c.Charge, "mail": c.Mail}
	return func(t *testing.T, method, key string, amount int64) result {
		r := connect.NewRequest(&payv1.Order{Amount: amount})
		r.Header().Set("Idempotency-Key", key)
		res, err := methods[method](t.Context(), r)
		if err != nil {
			e := err.(*connect.Error) //nolint:errorlint // a client of Connect returns nothing else
			return result{text: e.Message(), code: codes.Code(e.Code()), replayed: e.Meta().Get("Idempotent-Replayed") == "true"}
		}
		return result{id: res.Msg.GetId(), replayed: res.Header().Get("Idempotent-Replayed") == "true"}
	}
}

// settled repeats a call until it is no longer in flight.
func (p *program) settled(t *testing.T, method, key string, amount int64) result {
	t.Helper()
	for {
		r := p.call(t, method, key, amount)
		if r.code != codes.Unavailable {
			return r
		}
		time.Sleep(10 * time.Millisecond) // a lease of a real store's clock
	}
}

func each(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	t.Parallel()
	for _, name := range []string{"grpc", "connect"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

func bookings(t *testing.T, file string) (n int) {
	t.Helper()
	s, err := shop.Open(t.Context(), file)
	must(t, err)
	defer s.Close()
	must(t, s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM bookings`).Scan(&n))
	return n
}

// Replay, mismatch, thirty duplicates at once, and an error that is stored, in each class.
func TestEachClassRunsOnce(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		file, other := filepath.Join(t.TempDir(), "keys.db"), newProvider(t)
		p := start(t, name, file, other.URL)
		for _, method := range []string{"book", "charge", "mail"} {
			k := key + method
			answers := make(chan result, 30)
			var all sync.WaitGroup
			for range cap(answers) {
				all.Go(func() { answers <- p.settled(t, method, k, 1200) })
			}
			all.Wait()
			close(answers)
			fresh, first := 0, ""
			for r := range answers {
				if r.code != codes.OK || first != "" && r.id != first {
					t.Fatalf("%s: got %+v", method, r)
				}
				first = r.id
				if !r.replayed {
					fresh++
				}
			}
			if fresh != 1 {
				t.Errorf("%s: %d answers are no replays", method, fresh)
			}
			if r := p.call(t, method, k, 9900); r.code != codes.FailedPrecondition {
				t.Errorf("%s: another amount got %+v", method, r)
			}
		}
		for range 2 {
			if r := p.call(t, "charge", key, -1); r.code != codes.InvalidArgument || r.text != "the amount is not positive" {
				t.Errorf("got %+v", r)
			}
		}
		if r := p.call(t, "charge", key, -1); !r.replayed {
			t.Error("an error is not replayed")
		}
		charges, mails := other.effects()
		if n := bookings(t, file); n != 1 || charges != 1 || mails != 1 {
			t.Errorf("%d bookings, %d charges, %d mails", n, charges, mails)
		}
	})
}

// Kill -9 while the provider has done its part and not answered, and at any moment of a
// booking. A retry finds one effect.
func TestKilledProgramHasOneEffect(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		file, other := filepath.Join(t.TempDir(), "keys.db"), newProvider(t)
		for _, method := range []string{"charge", "mail"} {
			p := start(t, name, file, other.URL)
			held := make(chan struct{})
			other.hold(held)
			lost := make(chan result, 1)
			go func() { lost <- p.call(t, method, key+method, 1200) }()
			<-held
			p.kill()
			if r := <-lost; r.code == codes.OK {
				t.Fatalf("got %+v of a killed program", r)
			}
			other.hold(nil)
			r := start(t, name, file, other.URL).settled(t, method, key+method, 1200)
			if method == "charge" && r.code != codes.OK || method == "mail" && r.code != codes.Unknown {
				t.Errorf("%s: the retry got %+v", method, r)
			}
		}
		for i := range 4 {
			p := start(t, name, file, other.URL)
			k := fmt.Sprint(key, i)
			done := make(chan struct{})
			go func() {
				defer close(done)
				p.call(t, "book", k, 1200)
			}()
			if i%2 == 0 {
				<-done
			}
			p.kill()
			<-done
			if r := start(t, name, file, other.URL).settled(t, "book", k, 1200); r.code != codes.OK {
				t.Errorf("the retry got %+v", r)
			}
			if n := bookings(t, file); n != i+1 {
				t.Fatalf("%d bookings, want %d", n, i+1)
			}
		}
		if charges, mails := other.effects(); charges != 1 || mails != 1 {
			t.Errorf("%d charges, %d mails", charges, mails)
		}
	})
}
