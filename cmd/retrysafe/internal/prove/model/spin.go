package model

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/spec"
)

// Spin is the model checker: the program of that name, and the compiler that it
// needs.
type Spin struct{ dir string }

// FindSpin returns the model checker, to work below a directory.
func FindSpin(dir string) (*Spin, error) { return findSpin(dir, exec.LookPath) }

func findSpin(dir string, look func(string) (string, error)) (*Spin, error) {
	for _, program := range []string{"spin", "gcc"} {
		if _, err := look(program); err != nil {
			return nil, fmt.Errorf("the model is searched by spin and gcc, and %s is missing: apt-get install spin gcc", program)
		}
	}
	return &Spin{dir: dir}, nil
}

// A SearchReport is what a search has found.
type SearchReport struct {
	// States are the different ones that were seen.
	States int
	// Depth is how many steps the longest run had that the search went down.
	Depth int
	// Breaks is the invariant that can be broken, such as S1; empty if none can.
	Breaks string
	// Steps is how many it takes at least, and Trace tells them, with what breaks
	// as its last line.
	Steps int
	Trace []string
}

// maxDepth bounds how far a search goes down one run. Going further is an error.
const maxDepth = 100_000

// Search searches the variant to its end: all that so many requests can do, without
// any reduction; or, in one that is to break, until the shortest way is known for
// certain. A search that did not come to its end is an error.
func (s *Spin) Search(ctx context.Context, v *Variant, attempts int) (out SearchReport, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("search %s: %w", v.Name, err)
		}
	}()
	dir, err := os.MkdirTemp(s.dir, v.Name+"-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(spec.Model), 0o600); err != nil {
		return out, err
	}
	in := job{dir, []string{"-DATTEMPTS=" + strconv.Itoa(attempts)}}
	for _, d := range v.Defines {
		in.defines = append(in.defines, "-D"+d)
	}
	report, err := in.search(ctx, v.Safe(), attempts)
	if err != nil {
		return out, err
	}
	out, clean, err := read(report)
	if err != nil || clean {
		return out, err
	}
	return out, in.tell(ctx, &out)
}

const file = "retrysafe.pml"

// A job is one search in a directory of its own.
type job struct {
	dir     string
	defines []string
}

// search has Spin write the searching program, compiles it and runs it.
func (j job) search(ctx context.Context, safe bool, attempts int) (report []byte, err error) {
	if _, err := j.run(ctx, "spin", append(append([]string{"-a"}, j.defines...), file)...); err != nil {
		return nil, err
	}
	compile := []string{"-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=4096", "-o", "pan", "pan.c"}
	search := []string{"-m" + strconv.Itoa(maxDepth)}
	if !safe {
		compile = append(compile, "-DREACH") // with -i, so that no shorter way is missed
		search = append(search, "-i")
	}
	if attempts < modeAttempts {
		search = append(search, "-w18")
	} else { // below that it takes longer to compile well than to search
		compile = append(compile, "-O1")
		search = append(search, "-w22")
	}
	if _, err := j.run(ctx, "gcc", compile...); err != nil {
		return nil, err
	}
	return j.run(ctx, "./pan", search...)
}

func (j job) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = j.dir
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	if gone := ctx.Err(); gone != nil {
		return nil, gone
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", program, err, said)
	}
	return said, nil
}

var (
	summary = regexp.MustCompile(`State-vector \d+ byte, depth reached (\d+), errors: (\d+)`)
	stored  = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
)

// read takes a searching program's report apart. It is clean if nothing can be
// broken; that, or that there is no shorter way to break it, is known only at the
// end of a search.
func read(report []byte) (out SearchReport, clean bool, err error) {
	sum, states := summary.FindSubmatch(report), stored.FindSubmatch(report)
	if sum == nil || states == nil {
		return out, false, fmt.Errorf("its report cannot be read:\n%s", report)
	}
	out.Depth, _ = strconv.Atoi(string(sum[1])) // digits, by the expression
	out.States, _ = strconv.Atoi(string(states[1]))
	clean = string(sum[2]) == "0"
	for _, cut := range cuts {
		if clean && bytes.Contains(report, []byte(cut)) {
			return out, false, fmt.Errorf("it did not come to its end (%s):\n%s", cut, report)
		}
	}
	return out, clean, nil
}

// cuts are what a report says of a search that did not come to its end.
var cuts = []string{"Search not completed", "max search depth too small", "out of memory", "MEMLIM bound"}

var (
	broken = regexp.MustCompile(`^(S\d+) is broken: `)
	ended  = regexp.MustCompile(`(?m)^spin: trail ends after (\d+) steps`)
)

// tell reads the trail that a search has left as the story that it is.
func (j job) tell(ctx context.Context, out *SearchReport) error {
	said, err := j.run(ctx, "spin", append(append([]string{"-t", "-T"}, j.defines...), file)...)
	if err != nil {
		return err
	}
	steps := ended.FindSubmatch(said)
	if steps == nil {
		return fmt.Errorf("its trail cannot be read:\n%s", said)
	}
	out.Steps, _ = strconv.Atoi(string(steps[1]))
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "spin: warning") { // of files made within the same second
			continue
		}
		if strings.HasPrefix(line, "spin:") {
			break
		}
		out.Trace = append(out.Trace, line)
	}
	if len(out.Trace) == 0 {
		return fmt.Errorf("its trail tells nothing:\n%s", said)
	}
	switch last := out.Trace[len(out.Trace)-1]; {
	case broken.MatchString(last):
		out.Breaks = broken.FindStringSubmatch(last)[1]
	case strings.HasPrefix(last, "The goal is reached"):
		out.Breaks = Goal
	default:
		return fmt.Errorf("its trail ends without a reason:\n%s", said)
	}
	return nil
}
