package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// While the store is down nothing runs: 503 with Retry-After, the service is not
// called. When it is back, requests run again without a restart.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	s := newService(t)
	pg := testservers.NewPostgres(t, nil)
	g := newGateway(t, conf(s, pg.URL("postgres")))
	post := func(key string) answer {
		t.Helper()
		got, err := g.post(t.Context(), "/payments", key, fmt.Sprintf(`{"order": %q}`, key))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := post("before-the-outage-1")
	if before.status != http.StatusCreated {
		t.Fatalf("%+v", before)
	}
	for name, outage := range map[string]struct{ begin, end func() error }{
		"killed": {pg.Kill, func() error { return pg.Restart(t.Context()) }},
		"paused": {pg.Pause, pg.Continue},
	} {
		calls := s.total()
		if err := outage.begin(); err != nil {
			t.Fatal(err)
		}
		var slowest time.Duration
		for i := range 8 {
			began := time.Now()
			got := post(fmt.Sprintf("in-the-outage-%s-%d", name, i))
			slowest = max(slowest, time.Since(began))
			if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %v %s", name, got.status, got.header, got.body)
			}
		}
		t.Logf("%s: the slowest refusal took %v", name, slowest)
		if s.total() != calls {
			t.Errorf("%s: the service was called %d times without a reservation", name, s.total()-calls)
		}
		if err := outage.end(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it heals", func() bool { return post(fmt.Sprintf("in-the-outage-%s-0", name)).status == http.StatusCreated })
		if got := post("before-the-outage-1"); got.body != before.body {
			t.Errorf("%s: the answer was %s, and is %s", name, before.body, got.body)
		}
	}
}

// A gateway without requests notices a store that answers and takes no writes,
// because its disk is full, and one that is stopped. It stays alive all the time.
func TestReadyzOfAnIdleGateway(t *testing.T) {
	t.Parallel()
	s := newService(t)
	pg := testservers.NewPostgres(t, nil)
	g := newGateway(t, conf(s, pg.URL("postgres")))
	db, err := pgx.Connect(t.Context(), pg.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END$$`)
	notReady := func(why string) {
		t.Helper()
		eventually(t, "it is not ready: "+why, func() bool { return !g.ready() })
		got, err := http.Get("http://" + g.addr + "/.retrysafe/livez")
		if err != nil || got.StatusCode != http.StatusOK {
			t.Fatalf("livez with a store that is %s: %+v, %v", why, got, err)
		}
		_ = got.Body.Close()
	}
	exec("CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON retrysafe_keys EXECUTE FUNCTION full_disk()")
	notReady("full")
	exec("DROP TRIGGER full_disk ON retrysafe_keys")
	eventually(t, "it is ready again", g.ready)
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	notReady("stopped")
	g.logs("not ready; look at the store")
}

// While the service is down nothing has happened, and the gateway knows: the key may
// be retried, and runs as soon as the service is back.
func TestUpstreamDown(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "sqlite:"+filepath.Join(t.TempDir(), "keys.db")))
	s.CloseClientConnections()
	s.Close()
	for range 3 {
		got, err := g.post(t.Context(), "/payments", "while-it-is-down-1", `{"amount": 1}`)
		if err != nil || got.status < 500 || got.header.Get("Retry-After") == "" {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	s.start(t)
	got, err := g.post(t.Context(), "/payments", "while-it-is-down-1", `{"amount": 1}`)
	if err != nil || got.status != http.StatusCreated {
		t.Fatalf("%+v, %v", got, err)
	}
	if n, _ := s.called(`{"amount": 1}`); n != 1 {
		t.Errorf("the service was called %d times", n)
	}
}

// SIGTERM under load: every accepted request gets an answer, and it is stored.
func TestDrain(t *testing.T) {
	t.Parallel()
	const many = 100
	s := newService(t)
	var here sync.WaitGroup
	here.Add(many)
	let := make(chan struct{})
	s.before = func(string) {
		here.Done()
		<-let
	}
	g := newGateway(t, conf(s, "sqlite:"+filepath.Join(t.TempDir(), "keys.db")))
	answers := make([]answer, many)
	post := func(i int) (answer, error) {
		return g.post(t.Context(), "/payments", fmt.Sprintf("sent-before-the-end-%d", i), fmt.Sprintf(`{"amount": %d}`, i))
	}
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			got, err := post(i)
			for err == nil && got.status == http.StatusServiceUnavailable { // the store is slow under so many
				time.Sleep(20 * time.Millisecond)
				got, err = post(i)
			}
			if answers[i] = got; err != nil || got.status != http.StatusCreated {
				t.Errorf("%d: %+v, %v", i, got, err)
			}
		})
	}
	here.Wait() // all of them are at the service
	ended := make(chan string, 1)
	go func() { ended <- g.end(syscall.SIGTERM).String() }()
	eventually(t, "it takes no more", func() bool { return !g.ready() })
	close(let)
	wg.Wait()
	if state := <-ended; state != "exit status 0" {
		t.Errorf("it ended with %s\n%s", state, g.log)
	}
	s.before = nil
	g.start()
	for i := range answers {
		if got, err := post(i); err != nil || got.body != answers[i].body || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%d: the answer was %s, and is %+v, %v", i, answers[i].body, got, err)
		}
	}
	if s.total() != many {
		t.Errorf("the service was called %d times for %d payments", s.total(), many)
	}
}
