package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
)

// A task is what a child is told.
type task struct {
	Store, Provider string
	Scenario, Name  string
	Point           int // where it ends; 0 is nowhere
}

// What a child says, line by line.
const (
	saysShown  = "shown "  // and an answer, as a client has seen it
	saysDying  = "dying "  // and where
	saysFailed = "failed " // and why it has no answer
)

// oneCall makes a connection for each call, so that none is sent twice behind its back.
var oneCall = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// child plays a scenario once, over a store in which it may end at any step. It closes
// nothing: it is not to end well.
func (g rig) child(ctx context.Context, told []byte) error {
	var t task
	if err := json.Unmarshal(told, &t); err != nil {
		return err
	}
	db, err := sandbox.Open(ctx, t.Store)
	if err != nil {
		return err
	}
	s := g.scenario(t.Scenario)
	if s == nil {
		return fmt.Errorf("there is no scenario %q", t.Scenario)
	}
	f := &fuse{left: t.Point, out: os.Stdout}
	n, err := g.node(db, effect.Client{URL: t.Provider, HTTP: oneCall}, f, budget, s, t.Name)
	if err != nil {
		return err
	}
	out, err := s.act(ctx, n)
	if err != nil {
		_, err = fmt.Fprintln(os.Stdout, saysFailed+strings.ReplaceAll(err.Error(), "\n", " "))
		return err
	}
	answer, err := json.Marshal(out.Result)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "%s%s\n", saysShown, answer); err != nil {
		return err
	}
	f.point("after the answer")
	return nil
}

func (g rig) scenario(name string) *scenario {
	for i := range g.scenarios {
		if g.scenarios[i].name == name {
			return &g.scenarios[i]
		}
	}
	return nil
}

// crash kills children at each point of every scenario.
func (g rig) crash(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	c, err := g.crashes(ctx, env, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var lanes []lane
	for i := range g.scenarios {
		s := &g.scenarios[i]
		first, stride := rotation(env, i, g.every)
		lanes = append(lanes, lane{first, stride, func(ctx context.Context, point int) (bool, error) {
			name := fmt.Sprintf("crash %s %d", s.name, point)
			last, err := c.kill(ctx, s, name, point)
			return last.killed || last.failed, err
		}})
	}
	if err := sweep(ctx, env, len(lanes), lanes); err != nil {
		return err
	}
	r.Count("named points", len(c.points))
	return c.audit(ctx)
}

// crashes is a field on which children play.
type crashes struct {
	*field
	server  *effect.Server
	running chan struct{} // a slot for each running child

	mu     sync.Mutex
	points map[string]bool // where children have ended
}

func (g *rig) crashes(ctx context.Context, env *prove.Env, r *prove.Result) (*crashes, error) {
	f, err := g.enter(ctx, env, r)
	if err != nil {
		return nil, err
	}
	at, err := f.at.Serve(ctx)
	if err != nil {
		return nil, errors.Join(err, f.db.Close())
	}
	return &crashes{field: f, server: at, running: make(chan struct{}, runtime.NumCPU()+1), points: map[string]bool{}}, nil
}

func (c *crashes) close() error { return errors.Join(c.server.Close(), c.db.Close()) }

// last is what is known of a child that has ended.
type last struct {
	killed bool // otherwise it came to its end
	failed bool // without an answer
	where  string
	stderr string
}

// kill lets a child play a scenario as far as a point, and brings its key to the end.
func (c *crashes) kill(ctx context.Context, s *scenario, name string, point int, env ...string) (last, error) {
	a, err := c.opens(ctx, s, name)
	if err != nil {
		return last{}, err
	}
	l, err := c.run(ctx, a, point, env)
	if err != nil {
		return last{}, err
	}
	a.trace = []string{"killed " + l.where}
	switch {
	case l.killed:
		c.r.Count("children killed", 1)
		c.mu.Lock()
		c.points[s.name+": "+l.where] = true
		c.mu.Unlock()
	case l.failed:
		c.r.Count("children that gave up", 1)
	}
	return l, c.settle(ctx, a)
}

// run runs a child, and notes what its client was shown.
func (c *crashes) run(ctx context.Context, a *account, point int, env []string) (l last, err error) {
	cmd, err := child.Command(ctx, c.role, task{c.env.Store, c.server.URL, a.s.name, a.name, point})
	if err != nil {
		return l, err
	}
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	c.running <- struct{}{}
	err = cmd.Run()
	<-c.running
	l.stderr = stderr.String()
	for line := range strings.Lines(stdout.String()) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, saysDying):
			l.killed, l.where = true, strings.TrimPrefix(line, saysDying)
		case strings.HasPrefix(line, saysFailed):
			l.failed = true
			c.env.Log.Debug("a child gave up", "case", a.name, "why", line)
		case strings.HasPrefix(line, saysShown):
			var shown retrysafe.Result
			if err := json.Unmarshal([]byte(strings.TrimPrefix(line, saysShown)), &shown); err != nil {
				return l, fmt.Errorf("%s: hear a child: %w", a.name, err)
			}
			a.shown = append(a.shown, shown)
		}
	}
	if err != nil && !l.killed {
		l.killed, l.where = diedAt(l.stderr)
	}
	if err != nil && !l.killed {
		return l, fmt.Errorf("%s: the child failed: %w\n%s", a.name, err, l.stderr)
	}
	return l, ctx.Err()
}

// diedAt returns the failpoint at which a child says that it ended. Only programs
// that are built for it have any.
func diedAt(stderr string) (killed bool, where string) {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	where, killed = strings.CutPrefix(lines[len(lines)-1], "failpoint ")
	return killed, where
}
