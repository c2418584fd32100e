package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// The routes of a gateway before a dying service.
const (
	unprotected = "unprotected"
	keyed       = "keyed"
	passed      = "passed"
)

// everybody is the scope of a gateway that does not tell callers apart.
const everybody = "none"

// A lane is a client that sends operations to one service, through whatever stands
// before it.
type lane struct {
	name    string
	front   string // the URL that it sends to
	service *service
	deaths  []death
	routes  []string
	client  *http.Client // one that knows nothing of all this, and retries as any does
	record  func(ctx context.Context, key string) (retrysafe.Record, error)
	random  *rand.Rand
	result  *prove.Result
	tell    *progress
}

const (
	// mostTogether is how many operations die at once.
	mostTogether = 3
	// mostSent is how often an operation is sent before it is given up, a minute at
	// least: a lease may have to end first, if the store was too slow for its attempt.
	mostSent = 1200
)

// run sends operations until the service has died so often under them.
func (l *lane) run(ctx context.Context, kills int) error {
	for n, done := 0, 0; done < kills; n++ {
		died, err := l.round(ctx, n, kills-done)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		done += died
		l.result.Count("deaths: "+l.name, died)
		l.tell.add(died)
	}
	return nil
}

// round sends operations that die together, as the first on their connections or
// after another, and judges them. Every way to die comes in its turn; all else is
// drawn.
func (l *lane) round(ctx context.Context, n, most int) (died int, err error) {
	deaths := []death{l.deaths[n%len(l.deaths)]}
	route := l.routes[l.random.IntN(len(l.routes))]
	if deaths[0] == hang && route == passed { // nothing bounds its time
		route = l.routes[0]
	}
	path := route
	if deaths[0] == hang {
		path = "hung/" + route
	} else if route == keyed && l.random.IntN(3) == 0 && most > 1 {
		deaths = append(deaths, l.deaths[l.random.IntN(len(l.deaths)-1)]) // and the retry too; hang is the last
	}
	if l.random.IntN(2) == 0 {
		if _, err := l.send(ctx, unprotected, fmt.Sprintf("wire-%s-warm-%d", tag(l.name), n), "{}"); err != nil {
			return 0, err
		}
	}
	ops := make([]string, 1)
	if l.random.IntN(4) == 0 && most >= mostTogether*len(deaths) {
		ops = make([]string, mostTogether)
	}
	for i := range ops {
		ops[i] = fmt.Sprintf("wire-%s-%d-%d", tag(l.name), n, i)
	}
	l.service.doom(deaths, ops...)
	var wg sync.WaitGroup
	errs := make(chan error, len(ops))
	for _, op := range ops {
		body := ""
		if l.random.IntN(2) == 0 {
			body = fmt.Sprintf(`{"operation":%q}`, op)
		}
		wg.Go(func() { errs <- l.see(ctx, route, path, op, body, deaths) })
	}
	wg.Wait()
	close(errs)
	for failed := range errs {
		if failed != nil {
			err = failed
		}
	}
	return len(ops) * len(deaths), err
}

// see sends an operation whose first calls die, retries it as clients do, and judges
// what has become of it after each.
func (l *lane) see(ctx context.Context, route, path, op, body string, deaths []death) error {
	var last int
	for sent, told := 1, 0; sent <= mostSent; sent++ {
		var err error
		if last, err = l.send(ctx, path, op, body); err != nil {
			return err
		}
		if err := l.judge(ctx, route, op, sent, deaths); err != nil {
			return err
		}
		if route == passed {
			return nil
		}
		if last == http.StatusServiceUnavailable || route == keyed && last == http.StatusConflict { // the store is slow
			l.result.Count("requests asked to come again", 1)
			pause(ctx, 50*time.Millisecond)
			continue
		}
		// A keyed one may also die with another, whose connection it shares.
		if told++; route == keyed && last == http.StatusCreated || route == unprotected && told > len(deaths) {
			break
		}
	}
	o := l.service.of(op)
	switch {
	case route == unprotected && last != http.StatusConflict:
		l.result.Violatef("S9", op, "%s: the outcome is unknown after %q, and a retry got %d", l.name, deaths, last)
	case route == keyed && last != http.StatusCreated:
		l.result.Violatef("S4", op, "%s: after %q the service lives again, and a retry got %d", l.name, deaths, last)
	case route == keyed:
		if err := o.alike(); err != nil {
			l.result.Violatef("S1", op, "%s: after %q: %v", l.name, deaths, err)
		}
	}
	l.result.Count("calls", o.calls)
	l.result.Count("calls on kept connections", o.kept)
	return nil
}

// judge compares what has reached the service with what is recorded, after so many
// requests of the client.
func (l *lane) judge(ctx context.Context, route, op string, sent int, deaths []death) error {
	calls := l.service.of(op).calls
	attempts := sent // where nothing is recorded, the client's own requests are the attempts
	if route != passed {
		record, err := l.record(ctx, op)
		if err != nil && !errors.Is(err, retrysafe.ErrNotFound) {
			return fmt.Errorf("load the record of %s: %w", op, err)
		}
		attempts = record.Attempt // without a record there is none
		if known := record.State == retrysafe.StateCompleted || record.State == retrysafe.StateRetryable; route == unprotected && calls > 0 && known {
			l.result.Violatef("S9", op, "%s: after %q the key is %s, and the outcome is unknown", l.name, deaths, record.State)
		}
	}
	if calls == 0 {
		l.result.Count("requests that never arrived", 1)
	}
	if calls > attempts {
		l.result.Violatef("S16", op, "%s, %s route: after %q the service was called %d times in %d attempts", l.name, route, deaths, calls, attempts)
	}
	if route == unprotected && calls > 1 {
		l.result.Violatef("S1", op, "%s: after %q the service was called %d times on an unprotected route", l.name, deaths, calls)
	}
	return nil
}

// send sends an operation once and returns the status. The client has its own mind
// about what may be sent again, which must not matter where requests are guarded.
func (l *lane) send(ctx context.Context, path, op, body string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.front+"/"+path+"/"+op, in)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Idempotency-Key", `"`+op+`"`)
	r.Header.Set("Content-Type", "application/json")
	client := l.client
	if path == passed {
		client = fresh
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, unlessPassed(path, err)
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, unlessPassed(path, err)
}

// fresh is a client that keeps no connection: on a kept one an answer that is cut off
// before its head has left would make it send again by itself.
var fresh = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// unlessPassed returns err, or nil where half an answer of the service is passed on.
func unlessPassed(path string, err error) error {
	if path == passed {
		return nil
	}
	return err
}

// tag makes a part of a key of a name.
func tag(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' {
			return c
		}
		return -1
	}, strings.ToLower(name))
}
