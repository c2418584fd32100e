package wire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
)

// A gateway is the command at work before a service, as a process.
type gateway struct {
	url, admin string
	process    *child.Process
	log        *transcript
}

// adminToken opens the admin listener, which is on this machine and lasts for one
// check.
const adminToken = "prove-wire-admin-token"

// start starts a gateway with this configuration, to which addresses are added, and
// returns when it listens. It ends with ctx at the latest.
func start(ctx context.Context, env *prove.Env, name, conf string) (*gateway, error) {
	program := env.Program
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		program = self
	}
	file := filepath.Join(env.Dir, name+".yaml")
	conf = fmt.Sprintf("listen: 127.0.0.1:0\nadmin: { listen: \"127.0.0.1:0\", token: %s }\nstore: %q\ntenant: none\n", adminToken, env.Store) + conf
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	g := &gateway{log: new(transcript)}
	cmd := exec.CommandContext(ctx, program, "gateway", "--config", file)
	child.Tie(cmd)
	cmd.Stderr = g.log
	listens := make(chan struct{})
	var err error
	if g.process, err = child.Start(cmd, func(out io.Reader) { g.listen(out, listens) }); err != nil {
		return nil, err
	}
	select {
	case <-listens:
		return g, nil
	case <-g.process.Done():
		return nil, fmt.Errorf("the gateway ended at once, with %v: %s", g.process.State(), g.log.tail())
	}
}

// listen reads what the gateway tells people, to its end. The addresses are in it.
func (g *gateway) listen(out io.Reader, listens chan struct{}) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), "retrysafe: gateway on "); ok {
			g.url = at
		}
		if at, ok := strings.CutPrefix(lines.Text(), "retrysafe: operators on "); ok {
			g.admin = at
			close(listens)
			break
		}
	}
	_, _ = io.Copy(io.Discard, out)
}

// host is the address that clients dial.
func (g *gateway) host() string {
	u, err := url.Parse(g.url)
	if err != nil {
		return ""
	}
	return u.Host
}

// stop ends the gateway as an operator would, and reports how it ended.
func (g *gateway) stop() error {
	_ = g.process.Signal(syscall.SIGTERM) // one that has ended already is found below
	select {
	case <-g.process.Done():
	case <-time.After(drain + 15*time.Second):
		_ = g.process.OS().Kill()
		<-g.process.Done()
		return fmt.Errorf("the gateway does not end: %s", g.log.tail())
	}
	if !g.process.State().Success() {
		return fmt.Errorf("the gateway ended with %v: %s", g.process.State(), g.log.tail())
	}
	return nil
}

// drain is what gateways are given to end: more than a busy machine lets them stand
// still for. Nothing is left to do for them then.
const drain = 20 * time.Second

// metrics returns the gateway's own figures, by name.
func (g *gateway) metrics(ctx context.Context) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Close = true // a kept connection would be one of its goroutines
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the gateway's metrics: %s", answer.Status)
	}
	all := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		var name string
		var value float64
		if n, _ := fmt.Sscan(lines.Text(), &name, &value); n == 2 {
			all[name] = value
		}
	}
	return all, lines.Err()
}

// A transcript is what a process says. It keeps the end of it, and what should never
// be in it.
type transcript struct {
	mu    sync.Mutex
	last  []byte
	alarm string
}

// keptTail is how much of its end is kept.
const keptTail = 16 << 10

// alarms are words of a Go program that goes wrong. Nothing that is sent here has them.
var alarms = []string{"panic", "fatal error:", "DATA RACE", "goroutine 1 ["}

// Write implements [io.Writer].
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seam := max(0, len(t.last)-len("fatal error:")) // a word may come in two pieces
	t.last = append(t.last, p...)
	for _, word := range alarms {
		if at := strings.Index(string(t.last[seam:]), word); at >= 0 && t.alarm == "" {
			text := t.last[seam+at:]
			t.alarm = string(text[:min(len(text), 1000)])
		}
	}
	if over := len(t.last) - keptTail; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return len(p), nil
}

// alarmed returns the first alarm, or "".
func (t *transcript) alarmed() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.alarm
}

func (t *transcript) tail() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}
