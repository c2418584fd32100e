package crashtest

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// stageKeys is how many keys each stage of an upgrade adds.
const stageKeys = 100

// Upgrade runs processes of the present version and of the next one side by side on the
// same keys. The next one migrates under load; an old one restarts beside it; the next
// one is killed; old ones work alone; then a next one starts again. It returns what is
// wrong: a key with other than one effect, answers that differ, a member that cannot
// start or go on.
//
// Its test runs again in each member, and begins with [RunMember].
func Upgrade(t *testing.T, open OpenMember, where string) (wrong []string) {
	t.Helper()
	m, err := open(t.Context(), where, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if err := m.makeTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, where: where, answers: map[string][]string{}}
	defer f.stopAll()

	old := f.start("old-1")
	f.all(0, 1, old)

	f.tell(old, 1, 2) // the next version migrates meanwhile
	next := f.start(nextPrefix + "-1")
	f.all(1, 2, next)
	f.await(old)
	f.all(0, 1, next)

	again := f.start("old-2") // as a node that restarts in the middle of the roll-out
	f.all(2, 3, old, next, again)

	for _, m := range []*member{next, old, again} {
		f.tell(m, 3, 4)
	}
	f.kill(next)
	f.await(old, again)

	f.all(0, 4, again)                         // back to the present version alone
	f.all(0, 4, f.start(nextPrefix+"-2"), old) // and forward again
	effects, err := m.effects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return append(f.wrong, check(4*stageKeys, f.answers, effects)...)
}

// fleet is the set of members, and their answers.
type fleet struct {
	t       *testing.T
	where   string
	members []*member

	mu      sync.Mutex
	answers map[string][]string // of each key, as members got them
	wrong   []string
}

type member struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // one for each finished task, and one for its start
	ends chan struct{}
	said int // answers, under the fleet's lock
}

func (f *fleet) complain(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

func (f *fleet) start(name string) *member {
	f.t.Helper()
	m := &member{name: name, done: make(chan struct{}, 10), ends: make(chan struct{})}
	m.cmd = exec.CommandContext(f.t.Context(), os.Args[0], "-test.run=^"+f.t.Name()+"$")
	m.cmd.Env = append(os.Environ(), envMemberName+"="+name, envMemberAt+"="+f.where)
	m.cmd.Stderr = f.t.Output()
	in, err := m.cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	m.in = in
	f.members = append(f.members, m)
	go f.hear(m, out)
	f.await(m)
	return m
}

// hear reads the output of a member to its end.
func (f *fleet) hear(m *member, out io.Reader) {
	defer close(m.ends)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		kind, rest, _ := strings.Cut(lines.Text(), "\t")
		switch kind {
		case "done":
			m.done <- struct{}{}
		case "answer":
			key, answer, _ := strings.Cut(rest, "\t")
			f.mu.Lock()
			f.answers[key] = append(f.answers[key], answer)
			m.said++
			f.mu.Unlock()
		case "wrong":
			f.complain("%s: %s", m.name, rest)
		}
	}
}

// tell makes a member pay the keys of some stages.
func (f *fleet) tell(m *member, from, to int) {
	_, _ = fmt.Fprintln(m.in, from*stageKeys, to*stageKeys) // await reports a member that has ended
}

// await waits until each member has finished its last task.
func (f *fleet) await(all ...*member) {
	for _, m := range all {
		select {
		case <-m.done:
		case <-m.ends:
			f.complain("%s has ended", m.name)
		}
	}
}

func (f *fleet) all(from, to int, members ...*member) {
	for _, m := range members {
		f.tell(m, from, to)
	}
	f.await(members...)
}

// kill kills a member with no warning, after it has begun its last task.
func (f *fleet) kill(m *member) {
	said := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return m.said
	}
	for begin, busy := said(), true; busy && said() < begin+stageKeys/20; {
		select {
		case <-m.done:
			busy = false
		case <-m.ends:
			busy = false
		case <-time.After(time.Millisecond):
		}
	}
	_ = m.cmd.Process.Kill()
	<-m.ends
}

// stopAll ends every member that is left.
func (f *fleet) stopAll() {
	for _, m := range f.members {
		_ = m.in.Close()
		<-m.ends
		_ = m.cmd.Wait() // some were killed
	}
}

// check returns what is wrong with the answers and effects of keys.
func check(keys int, answers, effects map[string][]string) (wrong []string) {
	if len(answers) != keys {
		wrong = append(wrong, fmt.Sprintf("%d keys have answers, want %d", len(answers), keys))
	}
	for _, key := range slices.Sorted(maps.Keys(answers)) {
		if slices.ContainsFunc(answers[key], func(a string) bool { return a != answers[key][0] }) {
			wrong = append(wrong, fmt.Sprintf("%s has several answers: %q", key, answers[key]))
		}
		switch by := effects[key]; {
		case len(by) != 1:
			wrong = append(wrong, fmt.Sprintf("%s has %d effects: %q", key, len(by), by))
		case !strings.HasSuffix(answers[key][0], " by "+by[0]):
			wrong = append(wrong, fmt.Sprintf("%s has the effect of %s and the answer %q", key, by[0], answers[key][0]))
		}
	}
	return wrong
}
