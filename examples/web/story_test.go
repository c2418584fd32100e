// Package web_test runs the examples as programs: replay, mismatch, duplicates, errors,
// kill -9 and retry, in each guarantee class.
package web_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/examples/web/shop"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// built is where TestMain has built the programs.
var built string

// The programs are built with failpoints, at which they can be killed.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "retrysafe-web")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	built = dir
	if out, err := exec.Command("go", "build", "-tags=failpoint", "-o", dir, "./chi", "./gin", "./echo").CombinedOutput(); err != nil {
		log.Fatalf("%v: %s", err, out)
	}
	testservers.Main(m)
	leftover.None()
}

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

// world is an example, its database and its provider.
type world struct {
	name, database string
	lease          string
	provider       *provider
	bookings       func(t *testing.T) int
}

func each(t *testing.T, lease string, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	for name, count := range map[string]func(*testing.T, *world) func(*testing.T) int{"chi": inPostgres, "gin": inPostgres, "echo": inSQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{name: name, lease: lease}
			w.bookings = count(t, w)
			w.provider = newProvider(t)
			test(t, w)
		})
	}
}

const countBookings = `SELECT count(*) FROM bookings`

func inPostgres(t *testing.T, w *world) func(*testing.T) int {
	t.Helper()
	w.database = testservers.Shared(t)
	return func(t *testing.T) (n int) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), w.database)
		must(t, err)
		defer conn.Close(t.Context())
		must(t, conn.QueryRow(t.Context(), countBookings).Scan(&n))
		return n
	}
}

func inSQLite(t *testing.T, w *world) func(*testing.T) int {
	t.Helper()
	w.database = filepath.Join(t.TempDir(), "keys.db")
	return func(t *testing.T) (n int) {
		t.Helper()
		db, err := sql.Open("sqlite", sqlitestore.DSN(w.database))
		must(t, err)
		defer db.Close()
		must(t, db.QueryRowContext(t.Context(), countBookings).Scan(&n))
		return n
	}
}

// program is a running example.
type program struct {
	client *http.Client
	url    string
	end    func() // waits for its end
	kill   func()
}

// start starts the example. It is killed at the failpoint, if there is one.
func (w *world) start(t *testing.T, failpoint string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(built, w.name), w.database, w.provider.URL, "127.0.0.1:0", w.lease)
	cmd.Env = append(os.Environ(), "GIN_MODE=release")
	if failpoint != "" {
		cmd.Env = append(cmd.Env, "RETRYSAFE_FAILPOINT="+failpoint+"=kill")
	}
	out := &output{addr: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = out, t.Output()
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed, in every test
	}()
	p := &program{client: &http.Client{Transport: &http.Transport{}}}
	p.end = func() {
		<-ended
		p.client.CloseIdleConnections()
	}
	p.kill = func() {
		_ = cmd.Process.Kill()
		p.end()
	}
	t.Cleanup(p.kill)
	select {
	case addr := <-out.addr:
		p.url = "http://" + addr
	case <-ended:
		t.Fatalf("%s has ended", w.name)
	}
	return p
}

// output finds the address in what a program prints. Frameworks print other lines too.
type output struct {
	text []byte
	addr chan string
}

func (o *output) Write(p []byte) (int, error) {
	o.text = append(o.text, p...)
	for {
		line, rest, ok := bytes.Cut(o.text, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		o.text = rest
		if addr, ok := strings.CutPrefix(string(line), shop.Listening); ok {
			o.addr <- addr
		}
	}
}

// answer is what a client sees.
type answer struct {
	status     int
	kind, body string
	replayed   bool
}

// first returns the answer as its first client got it.
func (a answer) first() answer {
	a.replayed = false
	return a
}

func (p *program) post(t *testing.T, route, key string, amount int) (answer, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+route, strings.NewReader(fmt.Sprintf(`{"amount":%d}`, amount)))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	r.Header.Set("Content-Type", "application/json") // echo and the fingerprint go by it
	res, err := p.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header.Get("Content-Type"), string(body), res.Header.Get("Idempotent-Replayed") == "true"}, err
}

// ask repeats a request, as a client does, while it is in flight or the store is too slow
// for it. It returns an error if the program has no answer.
func (p *program) ask(t *testing.T, route, key string, amount int) (answer, error) {
	t.Helper()
	for {
		a, err := p.post(t, route, key, amount)
		if err != nil || a.status != http.StatusServiceUnavailable && !strings.Contains(a.body, `"code":"in-flight"`) {
			return a, err
		}
		time.Sleep(10 * time.Millisecond) // a lease of a real store's clock
	}
}

// settled returns the answer of a program that is not killed.
func (p *program) settled(t *testing.T, route, key string, amount int) answer {
	t.Helper()
	a, err := p.ask(t, route, key, amount)
	if err != nil {
		t.Error(err)
	}
	return a
}

const (
	key     = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	classA  = "/bookings"
	classB  = "/charges"
	classC  = "/mails"
	unknown = `"code":"outcome-unknown"`
)

// Thirty duplicates at once are one effect, and thirty times the same bytes; another
// amount is a mismatch; an error is stored as the error that it is. In each class.
func TestEachClassRunsOnce(t *testing.T) {
	each(t, "1h", func(t *testing.T, w *world) {
		p := w.start(t, "")
		for _, route := range []string{classA, classB, classC} {
			answers := make(chan answer, 30)
			var all sync.WaitGroup
			for range cap(answers) {
				all.Go(func() { answers <- p.settled(t, route, key+route, 1200) })
			}
			all.Wait()
			close(answers)
			fresh, seen := 0, map[answer]int{}
			for a := range answers {
				if !a.replayed {
					fresh++
				}
				if seen[a.first()]++; a.status != http.StatusCreated {
					t.Errorf("%s: got %+v", route, a)
				}
			}
			if len(seen) != 1 || fresh > 1 {
				t.Errorf("%s: %d answers are no replays; the answers are %v", route, fresh, seen)
			}
			if a := p.settled(t, route, key+route, 9900); a.status != http.StatusUnprocessableEntity {
				t.Errorf("%s: another amount gets %+v", route, a)
			}
			refused, again := p.settled(t, route, key+route+"-", -1), p.settled(t, route, key+route+"-", -1)
			if refused.status != http.StatusBadRequest || !strings.Contains(refused.body, shop.ErrAmount.Error()) {
				t.Errorf("%s: an amount below zero gets %+v", route, refused)
			}
			if !again.replayed || again.first() != refused.first() {
				t.Errorf("%s: the error %+v is replayed as %+v", route, refused, again)
			}
		}
		charges, mails := w.provider.effects()
		if n := w.bookings(t); n != 1 || charges != 1 || mails != 1 {
			t.Errorf("%d bookings, %d charges, %d mails", n, charges, mails)
		}
	})
}

// The program is killed when a booking is written and not yet committed, when it is
// committed and not yet answered, and when the provider has done its part and not answered.
// A retry after the restart finds one effect.
func TestKilledProgramHasOneEffect(t *testing.T) {
	each(t, "1s", func(t *testing.T, w *world) {
		for i, at := range []string{"dotx.ran", "dotx.committed"} {
			p := w.start(t, at)
			if a, err := p.ask(t, classA, key+at, 1200); err == nil {
				t.Fatalf("got %+v of a killed program", a)
			}
			p.end()
			if n := w.bookings(t); n != i {
				t.Errorf("%d bookings after a kill at %s, want %d", n, at, i)
			}
		}

		p, held := w.start(t, ""), make(chan struct{}, 2)
		w.provider.hold(held)
		answers := make(chan string, 2)
		for _, route := range []string{classB, classC} {
			go func() {
				a, err := p.ask(t, route, key+route, 1200)
				answers <- fmt.Sprint(a.status, err)
			}()
			select {
			case <-held:
			case a := <-answers:
				t.Fatalf("%s has not reached the provider: %s", route, a)
			}
		}
		p.kill()
		for range cap(answers) {
			if a := <-answers; !strings.HasPrefix(a, "0 ") {
				t.Errorf("got %s of a killed program", a)
			}
		}
		w.provider.hold(nil)

		p = w.start(t, "")
		for at, committed := range map[string]bool{"dotx.ran": false, "dotx.committed": true} {
			if a := p.settled(t, classA, key+at, 1200); a.status != http.StatusCreated || committed && !a.replayed {
				t.Errorf("after a kill at %s the retry gets %+v", at, a)
			}
		}
		if a := p.settled(t, classB, key+classB, 1200); a.status != http.StatusCreated {
			t.Errorf("class B: the retry gets %+v", a)
		}
		for range 2 {
			if a := p.settled(t, classC, key+classC, 1200); a.status != http.StatusConflict || !strings.Contains(a.body, unknown) {
				t.Errorf("class C: the retry gets %+v", a)
			}
		}
		charges, mails := w.provider.effects()
		if n := w.bookings(t); n != 2 || charges != 1 || mails != 1 {
			t.Errorf("%d bookings, %d charges, %d mails", n, charges, mails)
		}
	})
}
