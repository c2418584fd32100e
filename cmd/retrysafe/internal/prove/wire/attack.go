package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A tormentor sends hostile bytes to whatever stands before a witness, and watches
// what comes back.
type tormentor struct {
	addr    string // in clear text
	witness *witness
	result  *prove.Result
	seed    uint64
}

const (
	// answerWithin is how long the answer to a whole request may take.
	answerWithin = 20 * time.Second
	// endWithin is how long a refused connection may stay open. It is as generous.
	endWithin = answerWithin
	// mostDripped is how long a stream may be that is sent byte by byte.
	mostDripped = 1500
)

// strike sends the n-th stream of HTTP/1.
func (t *tormentor) strike(ctx context.Context, n int) error {
	g := &grammar{Rand: rand.New(rand.NewPCG(t.seed, uint64(n))), run: t.seed}
	data := g.stream(n)
	pace := len(data)
	switch {
	case g.IntN(6) == 0 && len(data) <= mostDripped:
		pace = 1
	case g.IntN(3) == 0:
		pace = 1 + g.IntN(len(data))
	}
	return t.send(ctx, data, pace, ending(g.IntN(endings)))
}

// persist sends bytes again for as long as an answer is that the gateway cannot now.
// On a busy machine a store does not answer in time now and then. What the bytes
// themselves bring about they do each time.
func (t *tormentor) persist(ctx context.Context, data []byte, send func() (busy bool, err error)) error {
	for end := time.Now().Add(answerWithin); ; pause(ctx, 50*time.Millisecond) {
		busy, err := send()
		if err != nil || !busy || ctx.Err() != nil {
			return err
		}
		if time.Now().After(end) {
			t.violate("G11", data, "answered %d for %v", http.StatusServiceUnavailable, answerWithin)
			return nil
		}
	}
}

// send sends the bytes of one connection, so many at a time, and judges what comes
// of them.
func (t *tormentor) send(ctx context.Context, data []byte, pace int, how ending) error {
	return t.persist(ctx, data, func() (bool, error) { return t.sendOnce(ctx, data, pace, how) })
}

func (t *tormentor) sendOnce(ctx context.Context, data []byte, pace int, how ending) (busy bool, err error) {
	means := strictly(data)
	for i := range means.whole {
		t.witness.allow(&means.whole[i])
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return false, fmt.Errorf("the gateway accepts no connection: %w", err)
	}
	defer c.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for rest := data; len(rest) > 0; {
			n, err := c.Write(rest[:min(pace, len(rest))])
			if err != nil {
				return // it was refused in the middle
			}
			rest = rest[n:]
		}
	}()
	t.result.Count("requests", max(1, len(means.whole)))
	busy = t.hear(c, data, means, sent, how)
	_ = c.Close()
	<-sent
	return busy, nil
}

// An ending is how a client ends that has not sent everything.
type ending int

const (
	hangsUp ending = iota
	resetsIt
	waits
	endings = iota
)

// hear reads the answers to a stream, and reports whether one is that the gateway
// cannot now. What must be answered is waited for.
func (t *tormentor) hear(c net.Conn, data []byte, means reading, sent <-chan struct{}, how ending) (busy bool) {
	in := bufio.NewReader(c)
	for n := 0; n < len(means.whole) || means.wrong != nil; {
		method, within := http.MethodPost, endWithin
		if n < len(means.whole) {
			method, within = means.whole[n].method, answerWithin
		} else if errors.Is(means.wrong, errCut) {
			<-sent
			switch how {
			case hangsUp:
				return busy
			case resetsIt:
				reset(c)
				return busy
			default:
				within = patiently
			}
		}
		_ = c.SetReadDeadline(time.Now().Add(within))
		answer, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(means.wrong, errCut) {
				t.violate("G11", data, "no answer within %v", within)
			}
			return busy
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		busy = t.judge(answer.StatusCode, body, data) || busy
		switch {
		case err != nil, answer.Close, n == len(means.whole): // a refusal is the last answer
			return busy
		case answer.StatusCode >= http.StatusOK:
			n++
		}
	}
	return busy
}

// judge looks at one answer, and reports whether it is that the gateway cannot now.
func (t *tormentor) judge(status int, body, data []byte) (busy bool) {
	t.result.Count(fmt.Sprintf("answers %dxx", status/100), 1)
	busy = status == http.StatusServiceUnavailable
	if status >= http.StatusInternalServerError && !busy {
		t.violate("G11", data, "answered %d %s", status, bytes.TrimSpace(body))
	}
	return busy
}

func (t *tormentor) violate(invariant string, data []byte, format string, args ...any) {
	t.result.Violate(prove.Violation{Invariant: invariant, What: fmt.Sprintf(format, args...) + " to " + quoted(data), Seed: t.seed})
}

// isWell sends a good request, which must be served. Again says that the same request
// may succeed when it is sent once more: the sender or the store was too slow.
func (t *tormentor) isWell(ctx context.Context, client *http.Client, base, name string, n int) (again bool, err error) {
	m := message{method: http.MethodPost, target: fmt.Sprintf("/good/%s/%d", name, n), body: []byte(`{"amount":1200}`)}
	t.witness.allow(&m)
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, m.method, base+m.target, bytes.NewReader(m.body))
	if err != nil {
		return false, err
	}
	r.Header.Set("Idempotency-Key", fmt.Sprintf(`"good-%x-%s-%d-0123456789"`, t.seed, name, n))
	answer, err := client.Do(r)
	if err != nil {
		return true, fmt.Errorf("a good request is not served: %w", err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		again = answer.StatusCode == http.StatusServiceUnavailable || answer.StatusCode == http.StatusRequestTimeout
		return again, fmt.Errorf("a good request got %d %s, %w", answer.StatusCode, body, err)
	}
	return false, nil
}
