package sweep

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// testCrashes returns a field on which children play, in a sandbox at an address.
func testCrashes(t *testing.T, address string) *crashes {
	t.Helper()
	y, err := sandbox.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sound.crashes(t.Context(), &prove.Env{Store: y.URL, Log: slog.New(slog.DiscardHandler)}, &prove.Result{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{c.close(), y.Close(t.Context())} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// W84: a program that was built without the tag does not hear the variable.
func TestW84_FailpointsAreOffByDefault(t *testing.T) {
	t.Parallel()
	if failpoint.On {
		t.Skip("this program was built with the tag")
	}
	c := testCrashes(t, "sqlite:"+filepath.Join(t.TempDir(), "mine.db"))
	l, err := c.kill(t.Context(), c.scenario("keyed"), "it lives", 0, "RETRYSAFE_FAILPOINT=begin.reserved=kill,nonsense")
	if err != nil || l.killed || l.failed || l.stderr != "" {
		t.Errorf("%+v, %v", l, err)
	}
}

// Children end inside of the engine and the stores, at every point that has a name,
// where no wrapper reaches. Build it with the tag failpoint.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	if !failpoint.On {
		t.Skip("this program was built without the tag failpoint")
	}
	named := failpoints(t)
	hit := &tally{counts: map[string]int{}}
	t.Run("stores", func(t *testing.T) {
		for name, address := range map[string]string{
			"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "mine.db"), "postgres": testservers.Shared(t),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				killAtFailpoints(t, testCrashes(t, address), hit)
			})
		}
	})
	killed := slices.Sorted(maps.Keys(hit.counts))
	if !slices.Equal(killed, named) {
		t.Errorf("the source names %q\nand children were killed at %q", named, killed)
	}
	if len(named) < 20 {
		t.Errorf("only %d points have names", len(named))
	}
	t.Logf("killed at %d points: %v", len(named), hit.counts)
}

// tally counts by name.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[name]++
}

// killAtFailpoints ends children at the points that each scenario passes, the first
// time and the last.
func killAtFailpoints(t *testing.T, c *crashes, hit *tally) {
	t.Helper()
	lanes := make([]lane, 0, len(c.scenarios))
	for i := range c.scenarios {
		s := &c.scenarios[i]
		noted, err := c.kill(t.Context(), s, "note "+s.name, 0, "RETRYSAFE_FAILPOINT=*=note")
		if err != nil {
			t.Fatal(err)
		}
		var ends []string
		last := map[string]int{}
		for line := range strings.Lines(noted.stderr) {
			name := strings.TrimSpace(strings.TrimPrefix(line, "failpoint "))
			if last[name]++; last[name] == 1 {
				ends = append(ends, name+"=kill@1")
			}
		}
		for name, n := range last {
			if n > 1 {
				ends = append(ends, fmt.Sprintf("%s=kill@%d", name, n))
			}
		}
		lanes = append(lanes, lane{1, 1, func(ctx context.Context, n int) (bool, error) {
			if n > len(ends) {
				return false, nil
			}
			for try := range 5 { // another process may have delivered its message
				l, err := c.kill(ctx, s, fmt.Sprintf("%s %s %d", s.name, ends[n-1], try), 0, "RETRYSAFE_FAILPOINT="+ends[n-1])
				if err != nil {
					return false, err
				}
				if l.killed {
					hit.add(l.where)
					break
				}
			}
			return true, nil
		}})
	}
	if err := sweep(t.Context(), c.env, len(lanes), lanes); err != nil {
		t.Fatal(err)
	}
	if err := c.audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, v := range c.r.Violations {
		t.Errorf("%s %s: %s %q", v.Invariant, v.Key, v.What, v.Trace)
	}
	t.Logf("%v children killed", c.r.Figure("children killed"))
}

var aPoint = regexp.MustCompile(`failpoint\.Hit\("([^"]+)"\)`)

// failpoints returns the names in the source.
func failpoints(t *testing.T) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("../../../../.."), ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/failpoint") {
			return err
		}
		text, err := os.ReadFile(filepath.Join("../../../../..", file))
		for _, m := range aPoint.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("a name is used twice: %q", names)
	}
	return names
}
