// Package mutate plants bugs into the source, one at a time, and looks whether the
// tests find them. A harness that finds nothing may have no teeth; this one shows
// its own.
//
// Nothing is changed in the source tree: the go command is given the changed file as
// an overlay.
package mutate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// budget is within what time a bug must be found, from compiled packages on.
const budget = time.Minute

// Checks returns the check of this package.
func Checks() []prove.Check {
	return []prove.Check{{
		Name: "mutants", Goal: "G3", Needs: prove.Source, Run: run,
		Size:  prove.Size{Of: "planted bugs", Change: 4}, // others each time
		Shows: "Each planted bug, the flaws of published recipes among them, is found by the test that is named for it.",
		Holds: []string{"S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S14", "S16"},
	}}
}

func run(ctx context.Context, env *prove.Env, r *prove.Result) error {
	all, err := Load(env.Source)
	if err != nil {
		return err
	}
	r.Count("planted bugs in all", len(all))
	some := all
	if n := env.Times(); 0 < n && n < len(all) {
		rng := rand.New(rand.NewPCG(env.Seed, 0))
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		some = all[:n]
	}
	slowest := time.Duration(0)
	var broken []error
	for i, m := range some {
		took, err := m.hunt(ctx, env)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case errors.Is(err, errSurvived):
			r.Violatef("teeth", m.Name, "%s: %v by %s (%s)", m.Flaw, err, m.Layer, strings.Join(m.Kill, " "))
		case err != nil:
			broken = append(broken, fmt.Errorf("%s: %w", m.Name, err))
		default:
			r.Count("found", 1)
		}
		slowest = max(slowest, took)
		env.Step(i+1, len(some))
	}
	r.Measure("for the slowest", slowest.Round(time.Millisecond).Seconds(), "s")
	return errors.Join(broken...)
}

// errSurvived says that a bug was not found.
var errSurvived = errors.New("not found")

// hunt plants the bug and runs its test. Each test binary is linked once, which takes
// more time than most tests.
func (m *Mutant) hunt(ctx context.Context, env *prove.Env) (took time.Duration, err error) {
	overlay, err := m.overlay(env)
	if err != nil {
		return 0, err
	}
	binaries := make([]string, len(m.packages))
	for i, p := range m.packages { // compiling is not the test's time
		binaries[i] = filepath.Join(env.Dir, fmt.Sprintf("%s-%d.test", m.Name, i))
		defer func() { _ = os.Remove(binaries[i]) }() // some tens of megabytes each
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", binaries[i], p)
		cmd.Dir = env.Source
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("with the bug in it the program cannot be compiled: %w\n%s", err, out)
		}
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	ran := false
	for i, binary := range binaries {
		out, err := m.test(limited, env, m.packages[i], binary)
		took = time.Since(began)
		ran = ran || !bytes.Contains(out, []byte("no tests to run"))
		switch {
		case limited.Err() != nil:
			return took, fmt.Errorf("%w within %s", errSurvived, budget)
		case err == nil:
		case !bytes.Contains(out, []byte("--- FAIL")) && !bytes.Contains(out, []byte("panic: ")):
			return took, fmt.Errorf("its test did not run: %w\n%s", err, out)
		default:
			return took, nil
		}
	}
	if !ran {
		return took, fmt.Errorf("no test is called %q", m.pattern)
	}
	return took, errSurvived
}

// test runs the tests of one package.
func (m *Mutant) test(ctx context.Context, env *prove.Env, pkg, binary string) ([]byte, error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "-test.count=1", "-test.run="+m.pattern)
	cmd.Dir = filepath.Join(env.Source, filepath.FromSlash(pkg))
	cmd.WaitDelay = 5 * time.Second
	return cmd.CombinedOutput()
}

// overlay writes the planted file, and says to the go command where it belongs.
func (m *Mutant) overlay(env *prove.Env) (string, error) {
	planted, err := m.Plant(env.Source)
	if err != nil {
		return "", err
	}
	file := filepath.Join(env.Dir, m.Name+".go")
	if err := os.WriteFile(file, []byte(planted), 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(filepath.Join(env.Source, m.File))
	if err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(env.Dir, m.Name+".json")
	return overlay, os.WriteFile(overlay, replace, 0o600)
}
