package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Variables by which support.go.txt learns which mutant is active, and where to note
// which were reached.
const (
	envActive  = "RETRYSAFE_MUTANT"
	envReached = "RETRYSAFE_MUTANT_REACHED"
)

// A runner has the test binaries of one run.
type runner struct {
	options
	source   *source
	work     string // a directory that is removed at the end
	overlay  string
	progress io.Writer
	mu       sync.Mutex // guards progress
}

// A suite is the compiled tests of one package.
type suite struct {
	pkg, dir, binary string
	tests            []*test
}

// A test is one top-level test, run alone without a mutant.
type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool
	broken  bool // it fails without a mutant: allocations are counted, for example
}

// run plants the mutants, and returns what the tests noticed.
func run(ctx context.Context, o options, progress io.Writer) (*report, error) {
	s, err := load(ctx, o.dir, o.pkg)
	if err != nil {
		return nil, err
	}
	mutants, files, err := s.settle(s.find(o.file))
	if err != nil {
		return nil, err
	}
	rep := &report{pkg: s.path, all: len(mutants), verbose: o.verbose}
	chosen := draw(mutants, o.sample, o.seed)
	if o.list {
		rep.listed = chosen
		return rep, nil
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("nothing to plant in %s: check -file", o.pkg)
	}
	work, err := os.MkdirTemp("", "mut")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	r := &runner{options: o, source: s, work: work, progress: progress}
	if r.overlay, err = s.writeOverlay(work, files); err != nil {
		return nil, err
	}
	open := chosen
	for i, pkg := range append([]string{o.pkg}, o.tests...) {
		if len(open) == 0 {
			break
		}
		suite, err := r.prepare(ctx, i, pkg)
		if err != nil {
			return nil, err
		}
		for _, t := range suite.tests {
			if t.broken {
				rep.broken = append(rep.broken, pkg+" "+t.name)
			}
		}
		if open, err = r.judgeAll(ctx, rep, suite, open); err != nil {
			return nil, err
		}
	}
	rep.left(open)
	return rep, nil
}

// draw returns n of the mutants at random, in their order; all of them if n is 0.
func draw(mutants []*mutant, n int, seed uint64) []*mutant {
	if n == 0 || n >= len(mutants) {
		return mutants
	}
	var chosen []*mutant
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(mutants))[:n] {
		chosen = append(chosen, mutants[i])
	}
	slices.SortFunc(chosen, func(a, b *mutant) int { return a.id - b.id })
	return chosen
}

// prepare compiles the tests of a package, and runs each of them alone.
func (r *runner) prepare(ctx context.Context, i int, pkg string) (*suite, error) {
	dir, err := goCommand(ctx, r.dir, "list", "-f", "{{.Dir}}", pkg)
	if err != nil {
		return nil, err
	}
	s := &suite{pkg: pkg, dir: strings.TrimSpace(string(dir)), binary: filepath.Join(r.work, strconv.Itoa(i)+".test")}
	r.say("compiling the tests of %s", pkg)
	if _, err := goCommand(ctx, r.dir, "test", "-c", "-vet=off", "-overlay="+r.overlay, "-o", s.binary, pkg); err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.binary); err != nil {
		return nil, fmt.Errorf("%s has no tests", pkg)
	}
	list := exec.CommandContext(ctx, s.binary, "-test.list=^(Test|Fuzz|Example)")
	list.Dir = s.dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", pkg, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		s.tests = append(s.tests, &test{name: name, reaches: map[int]bool{}})
	}
	r.say("running %d tests of %s, each alone", len(s.tests), pkg)
	err = r.each(ctx, len(s.tests), func(n int) error { return r.learn(ctx, s, s.tests[n], i, n) })
	return s, err
}

// learn runs one test without a mutant, and notes what it reaches and how long it takes.
func (r *runner) learn(ctx context.Context, s *suite, t *test, i, n int) error {
	reached := filepath.Join(r.work, fmt.Sprintf("reached-%d-%d", i, n))
	began := time.Now()
	failed, err := r.execute(ctx, s, []string{t.name}, 10*time.Minute, envReached+"="+reached)
	if err != nil {
		return err
	}
	t.took, t.broken = time.Since(began), failed != ""
	text, err := os.ReadFile(reached)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for line := range strings.FieldsSeq(string(text)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return fmt.Errorf("%s has a line %q", reached, line)
		}
		t.reaches[id] = true
	}
	return os.RemoveAll(reached)
}

// judgeAll lets the tests of s look for each mutant, and returns those that they let pass.
func (r *runner) judgeAll(ctx context.Context, rep *report, s *suite, open []*mutant) ([]*mutant, error) {
	passed := make([]bool, len(open))
	err := r.each(ctx, len(open), func(n int) error {
		m := open[n]
		names, killer, err := r.judge(ctx, s, m)
		if err != nil {
			return err
		}
		passed[n] = killer == ""
		rep.note(m, names, killer)
		switch {
		case killer != "" && r.verbose:
			r.say("%s killed by %s", m, killer)
		case killer == "":
			r.say("%s NOT NOTICED by %d tests of %s", m, names, s.pkg)
		}
		return nil
	})
	var left []*mutant
	for n, m := range open {
		if passed[n] {
			left = append(left, m)
		}
	}
	return left, err
}

// judge runs the tests that reach m, fast ones first. It returns how many these are, and
// the one that noticed.
func (r *runner) judge(ctx context.Context, s *suite, m *mutant) (reaching int, killer string, err error) {
	var tests []*test
	for _, t := range s.tests {
		if t.reaches[m.id] && !t.broken {
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b *test) int { return int(a.took - b.took) })
	for rest := tests; len(rest) > 0; {
		var names []string
		var sum time.Duration
		// A process for the tests of a second, one for those of ten, one for the others.
		limit := time.Second
		if len(rest) < len(tests) {
			limit = 10 * time.Second
			if rest[0].took > limit {
				limit = time.Hour
			}
		}
		for len(rest) > 0 && (len(names) == 0 || sum+rest[0].took <= limit) {
			names, sum, rest = append(names, rest[0].name), sum+rest[0].took, rest[1:]
		}
		killer, err = r.execute(ctx, s, names, 5*sum+20*time.Second, envActive+"="+strconv.Itoa(m.id))
		if err != nil || killer != "" {
			return len(tests), killer, err
		}
	}
	return len(tests), "", nil
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// execute runs the named tests in one process, and returns what failed: a test's name,
// "timeout" or "crash".
func (r *runner) execute(ctx context.Context, s *suite, names []string, limit time.Duration, variable string) (failed string, err error) {
	hard, cancel := context.WithTimeout(ctx, limit+15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(hard, s.binary, "-test.run=^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.timeout="+limit.String())
	cmd.Dir = s.dir
	// Tests that build a program build it with the mutants.
	cmd.Env = append(os.Environ(), variable, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+r.overlay))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// What a test has started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) != nil {
			return os.ErrProcessDone
		}
		return nil
	}
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err == nil || cmd.ProcessState != nil && cmd.ProcessState.Success() { // also if its time was over just then
		return "", nil
	}
	var exit *exec.ExitError
	if hard.Err() == nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("run the tests of %s: %w", s.pkg, err)
	}
	if hard.Err() != nil || bytes.Contains(out.Bytes(), []byte("panic: test timed out")) {
		return "timeout", nil
	}
	if found := failedTest.FindSubmatch(out.Bytes()); found != nil {
		return string(found[1]), nil
	}
	return "crash", nil
}

// each calls do for 0 to n-1, as many at a time as there are jobs, until one fails.
func (r *runner) each(ctx context.Context, n int, do func(int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range r.jobs {
		workers.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					stop(err)
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

func (r *runner) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.progress, format+"\n", args...)
}
