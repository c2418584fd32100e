package field

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

// A job is one operation that clients ask for under one key, and what they were
// shown.
type job struct {
	mode        effect.Mode
	tenant, key string

	mu      sync.Mutex
	first   *shown // the first answer, which all others must be
	accused map[string]bool
}

// An answer is what must not change from one time to the next.
type answer struct {
	status                      int
	contentType, location, body string
}

// shown is an answer, and the node that gave it.
type shown struct {
	answer
	from string
}

func jobID(tenant string, m effect.Mode, key string) string {
	return tenant + "/" + string(m) + "/" + key
}

func (j *job) id() string { return jobID(j.tenant, j.mode, j.key) }

// answered returns what the first answer says, if there was any.
func (j *job) answered() (a report, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == nil {
		return a, false
	}
	return a, json.Unmarshal([]byte(j.first.body), &a) == nil
}

// show notes an answer that the client was shown, and what is wrong with it.
func (f *field) show(j *job, s shown) {
	var a report
	if err := json.Unmarshal([]byte(s.body), &a); err != nil || a.Job != j.id() {
		f.accusef(j, "S7", "%s answered with what is not this job's: %q", s.from, s.body)
		return
	}
	f.r.Count("answers", 1)
	j.mu.Lock()
	if j.first == nil {
		j.first = &s
	}
	first := *j.first
	j.mu.Unlock()
	if first.answer != s.answer {
		f.accuse(j, "S2", "two different answers were shown", fmt.Sprintf("%s: %+v", first.from, first.answer), fmt.Sprintf("%s: %+v", s.from, s.answer))
	}
}

func (f *field) accusef(j *job, invariant, format string, args ...any) {
	f.accuse(j, invariant, fmt.Sprintf(format, args...))
}

// accuse notes that a promise about a job was broken. It reports one breach of each
// promise, so that a thousand clients that see the same breach do not hide others.
func (f *field) accuse(j *job, invariant, what string, trace ...string) {
	j.mu.Lock()
	known := j.accused[invariant]
	if j.accused == nil {
		j.accused = map[string]bool{}
	}
	j.accused[invariant] = true
	j.mu.Unlock()
	if !known {
		f.r.Violate(prove.Violation{Invariant: invariant, Key: j.id(), What: what, Trace: trace})
	}
}

// A replyClass is what a request has come to.
type replyClass uint8

const (
	later   replyClass = iota // no answer yet: ask again
	final                     // the answer
	unknown                   // it may have happened
	refused                   // an answer that this request must not get
)

// Codes of a guard's problems that a client understands.
const (
	codeInFlight = "in-flight"
	codeUnknown  = "outcome-unknown"
)

type problem struct {
	Code  string `json:"code"`
	Title string `json:"title"`
}

// reply is what came back.
type reply struct {
	class  replyClass
	status int // 0: nothing came back
	code   string
}

// ask sends a job to a node, once, and notes the answer. The attempt is to be held
// at a point, if that is not empty.
func (f *field) ask(ctx context.Context, j *job, at *process, held point) reply {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.address()+"/"+string(j.mode), strings.NewReader(`{"key":"`+j.key+`","amount":1200}`))
	if err != nil {
		return reply{}
	}
	r.GetBody = nil // or the transport sends it again by itself
	r.Header.Set("Idempotency-Key", j.key)
	r.Header.Set("Tenant", j.tenant)
	r.Header.Set("Content-Type", "application/json")
	if held != "" {
		r.Header.Set(holdHeader, string(held))
	}
	f.r.Count("requests", 1)
	got, err := f.http.Do(r)
	if err != nil {
		f.r.Count("requests without a reply", 1)
		return reply{}
	}
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		f.r.Count("requests without a reply", 1)
		return reply{}
	}
	return f.read(j, at, got, string(body))
}

func (f *field) read(j *job, at *process, got *http.Response, body string) reply {
	p, status := problem{}, got.StatusCode
	if status < 300 && status != http.StatusAccepted {
		f.show(j, shown{answer{status, got.Header.Get("Content-Type"), got.Header.Get("Location"), body}, at.task.Name})
		return reply{final, status, ""}
	}
	_ = json.Unmarshal([]byte(body), &p) // what is no problem has no code
	switch {
	case status == http.StatusConflict && p.Code == codeUnknown:
		return reply{unknown, status, p.Code}
	case status >= 500:
		f.r.Count("server errors", 1)
		if f.noErrors {
			f.accusef(j, "G9", "%s answered %d: %s", at.task.Name, status, body)
		}
		return reply{later, status, p.Code}
	case status == http.StatusConflict, status == http.StatusAccepted, status == http.StatusTooManyRequests:
		return reply{later, status, p.Code}
	default:
		f.accusef(j, "L3", "%s refused a request for good that was the same each time, with %d: %s", at.task.Name, status, body)
		return reply{refused, status, p.Code}
	}
}

// Between two requests of a client for the same job; a Retry-After is a second at
// least, and checks are in a hurry.
const (
	shortRest = 5 * time.Millisecond
	longRest  = 80 * time.Millisecond
)

// settle asks for a job until there is an answer or its outcome is unknown; each time
// it asks the node that pick chooses. Patience is how long it waits for one of them. A
// client that gets neither is a broken promise. (L3)
func (f *field) settle(ctx context.Context, j *job, patience time.Duration, pick func(try int) *process) replyClass {
	limited, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for try, rest := 0, shortRest; limited.Err() == nil; try, rest = try+1, min(rest*2, longRest) {
		one, cancel := context.WithTimeout(limited, patience)
		got := f.ask(one, j, pick(try), "")
		cancel()
		if got.class == final || got.class == refused || got.class == unknown && j.mode == effect.Unprotected {
			return got.class
		}
		prove.Pause(limited, rest/2+rand.N(rest))
	}
	if ctx.Err() == nil {
		f.accusef(j, "L3", "a client has no answer after %v", bound)
	}
	return later
}

// anyNode picks a node at random.
func (f *field) anyNode(int) *process { return f.nodes[rand.N(len(f.nodes))] }
