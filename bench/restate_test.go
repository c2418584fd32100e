//go:build restate

package bench_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

var (
	restateServer = flag.String("restate", "", "the program restate-server; scripts/restate prints where it is")
	restateDocs   = flag.String("restate.docs", "", "the folder of benchmarks.md, whose section is written")
	restateQuick  = flag.Bool("restate.quick", false, "a quarter of a second for each run")
)

// TestRestate puts the gateway beside Restate, before handlers that do the same. It compares
// what both do: a request with a key runs once, and a retry gets its answer.
func TestRestate(t *testing.T) {
	if *restateServer == "" {
		t.Skip("a measurement, not a test: make bench-restate runs it")
	}
	s := full
	s.rounds, s.run, s.stock = 5, s.run/4, 1000
	if *restateQuick {
		s.run, s.warm = s.run/4, s.warm/4
	}
	l := &lab{TB: t, scale: s, report: &report{live: os.Stdout}}
	l.report.conditions = proxyConditions(s)
	besideRestate(l)
	goals := l.report.goals()
	goals.write(os.Stdout)
	if *restateDocs != "" && !t.Failed() {
		if err := l.report.publishSection("restate", filepath.Join(*restateDocs, "benchmarks.md")); err != nil {
			t.Fatal(err)
		}
	}
}

func init() { restateService = newRestateService }

// newRestateService is the handler of the service, by Restate's SDK. It answers what the
// service behind the gateway answers.
func newRestateService(answer []byte, run func()) (http.Handler, error) {
	create := func(restate.Context, json.RawMessage) (json.RawMessage, error) {
		run()
		return answer, nil
	}
	return server.NewRestate().WithLogger(slog.DiscardHandler, true).
		Bind(restate.NewService("Payments").Handler("Create", restate.NewServiceHandler(create))).Handler()
}

// restate starts Restate's server as one node with its default durability, and tells it where
// the service is.
func (l *lab) restate(service *process) *process {
	l.Helper()
	ingress, admin, node := porthold.Lent(l), porthold.Lent(l), porthold.Lent(l)
	cmd := exec.CommandContext(context.WithoutCancel(l.Context()), *restateServer, "--no-logo", "--base-dir", l.TempDir(), "--node-name", "bench", "--listen-mode", "tcp")
	cmd.Env = append(os.Environ(),
		"RESTATE_INGRESS__BIND_ADDRESS="+ingress, "RESTATE_ADMIN__BIND_ADDRESS="+admin, "RESTATE_BIND_ADDRESS="+node,
		"RESTATE_ADVERTISED_ADDRESS=http://"+node, "RESTATE_LOG_FILTER=warn", "RESTATE_DISABLE_TELEMETRY=true",
	)
	p := l.start(ingress, cmd)
	for {
		said, err := l.send(http.MethodPost, "http://"+admin+"/deployments", "", fmt.Sprintf(`{"uri": "http://%s"}`, service.addr), "")
		if err == nil && said.status < 300 {
			return p
		}
		select {
		case <-l.Context().Done():
			l.Fatal(said, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// A side is one of the two that are compared.
type side struct {
	name, url   string
	front, rear *process
}

// request returns a request for a new operation, or for its retry.
func (s *side) request(buf []byte, key string) []byte {
	_, path, _ := strings.Cut(strings.TrimPrefix(s.url, "http://"), "/")
	return fmt.Appendf(buf, "POST /%s HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAuthorization: Bearer bench\r\nContent-Type: application/json\r\nIdempotency-Key: \"%s\"\r\nContent-Length: %d\r\n\r\n%s", path, key, len(paymentBody), paymentBody)
}

func (s *side) newKeys() *exchange {
	return &exchange{addr: s.front.addr, next: func(c *client, buf []byte) []byte {
		return s.request(buf, fmt.Sprintf("%016x%016x", c.rng.Uint64(), c.rng.Uint64()))
	}}
}

func (s *side) replays(stock int) *exchange {
	return &exchange{addr: s.front.addr, next: func(c *client, buf []byte) []byte {
		return s.request(buf, fmt.Sprintf("a-key-of-the-stock-%d", c.next()%stock))
	}}
}

// cpu is the processor time that the side has used so far, its service included.
func (s *side) cpu(l *lab) time.Duration { return s.front.cpu(l) + s.rear.cpu(l) }

// cpu is the processor time that a process has used so far.
func (p *process) cpu(l *lab) time.Duration {
	l.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		l.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	ticks := 0
	for _, field := range strings.Fields(rest)[11:13] { // user and system, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			l.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// besideRestate measures new keys and replays, and asks both what they do with a key that is
// used for something else.
func besideRestate(l *lab) {
	service, restateRear := l.role("service", ""), l.role("restate", "")
	own, front := l.gateway(service.addr), l.restate(restateRear)
	sides := []*side{
		{"gateway (SQLite)", "http://" + own.addr + "/payments", own, service},
		{"Restate", "http://" + front.addr + "/Payments/Create", front, restateRear},
	}
	l.misusedKeys(sides)
	t := table{
		title: "Beside Restate",
		note:  "Answers of 200 bytes; a POST has 200 bytes of JSON. Load, both servers and both services share the processors; CPU is that of server and service together, without the load.",
		head:  []string{"clients", "requests", "server", "per second", "p50", "p99", "CPU for each"},
	}
	for _, s := range sides {
		if _, err := s.replays(l.stock).drive(l, load{clients: 32, calls: l.stock}); err != nil { // the keys that are replayed
			l.Fatal(s.name, err)
		}
	}
	for _, clients := range []int{1, 32, 256} {
		for _, kind := range []string{"new keys", "replays"} {
			all := l.interleave([]string{sides[0].name, sides[1].name}, func(i int) sample {
				e := sides[i].newKeys()
				if kind == "replays" {
					e = sides[i].replays(l.stock)
				}
				if _, err := e.drive(l, load{clients: clients, lasts: l.warm}); err != nil {
					l.Fatal(sides[i].name, err)
				}
				before := sides[i].cpu(l)
				s, err := e.drive(l, load{clients: clients, lasts: l.run})
				if err != nil {
					l.Fatal(sides[i].name, err)
				}
				s.serverCPU = sides[i].cpu(l) - before
				return s
			})
			for _, s := range sides {
				one := all[s.name]
				t.row(strconv.Itoa(clients), kind, s.name, one.of(perSecond).text(count), one.of(p50).text(micros), one.of(p99).text(micros), one.of(serverMicros).text(micros))
			}
			ours, theirs := all[sides[0].name], all[sides[1].name]
			l.report.find(finding{what: kind + "/s, " + clientsText(clients), beside: sides[1].name, got: ours.over(theirs, perSecond)})
			if kind == "new keys" {
				l.report.find(finding{what: "CPU for a new key, " + clientsText(clients), beside: sides[1].name, got: ours.over(theirs, serverMicros)})
			}
		}
	}
	l.report.add(t)
}

// A reply is what a server has answered.
type reply struct {
	status int
	body   string
}

// send sends one request.
func (l *lab) send(method, url, key, body, token string) (reply, error) {
	r, err := http.NewRequestWithContext(l.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, string(text)}, err
}

// misusedKeys sends a key again with another body, and by another caller, and notes what each
// side answers and whether its service ran.
func (l *lab) misusedKeys(sides []*side) {
	l.Helper()
	t := table{title: "A key that is used again", note: "What each answers to a second request under the key of a completed one, and whether the operation runs.", head: []string{"second request", sides[0].name, sides[1].name}}
	rows := [][]string{{"the same request of the same caller"}, {"another body"}, {"the same request of another caller"}}
	for _, s := range sides {
		for i, second := range []struct{ body, token string }{{`{"amount": 1}`, "first"}, {`{"amount": 2}`, "first"}, {`{"amount": 1}`, "second"}} {
			key := fmt.Sprintf("a-key-that-is-used-again-%d", i)
			first := l.mustSend(s.url, key, `{"amount": 1}`, "first")
			before := l.mustSend("http://"+s.rear.addr+"/runs", "", "", "").body
			got := l.mustSend(s.url, key, second.body, second.token)
			ran := l.mustSend("http://"+s.rear.addr+"/runs", "", "", "").body != before
			what := strconv.Itoa(got.status)
			switch {
			case ran:
				what += ", and it runs for this request"
			case got == first:
				what += ", the first answer; it does not run"
			default:
				what += ", refused; it does not run"
			}
			rows[i] = append(rows[i], what)
		}
	}
	for _, cells := range rows {
		t.row(cells...)
	}
	l.report.add(t)
}

func (l *lab) mustSend(url, key, body, token string) reply {
	l.Helper()
	method := http.MethodPost
	if key == "" {
		method = http.MethodGet
	}
	got, err := l.send(method, url, key, body, token)
	if err != nil {
		l.Fatal(err)
	}
	return got
}
