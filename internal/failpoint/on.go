//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// On says whether this program has failpoints.
const On = true

// Hit does what the environment says about the point.
func Hit(name string) {
	for _, p := range plan {
		if p.name == name || p.name == "*" {
			p.hit(name)
		}
	}
}

var plan = parse(os.Getenv("RETRYSAFE_FAILPOINT"))

// A point is what happens at one name.
type point struct {
	name, action string
	at           int64 // the hit that counts; 0 is every one
	hits         atomic.Int64
}

// parse reads the plan in the environment. If it cannot be read, the program exits: a
// test that gets another plan than it asked for proves nothing.
func parse(text string) (points []*point) {
	for one := range strings.SplitSeq(text, ",") {
		if one == "" {
			continue
		}
		name, rest, _ := strings.Cut(one, "=")
		action, at, counted := strings.Cut(rest, "@")
		p := &point{name: name, action: action}
		if action == "kill" && !counted {
			at, counted = "1", true
		}
		var err error
		if counted {
			p.at, err = strconv.ParseInt(at, 10, 64)
		}
		if _, wrong := time.ParseDuration(action); wrong != nil && action != "kill" && action != "pause" && action != "note" {
			err = wrong
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "failpoint: %q cannot be read: %v\n", one, err)
			os.Exit(2) //nolint:forbidigo // only in programs that are built to be killed
		}
		points = append(points, p)
	}
	return points
}

func (p *point) hit(name string) {
	if n := p.hits.Add(1); p.at > 0 && n != p.at {
		return
	}
	fmt.Fprintln(os.Stderr, "failpoint "+name)
	switch p.action {
	case "note":
	case "kill":
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {}
	case "pause":
		select {}
	default:
		d, _ := time.ParseDuration(p.action)
		time.Sleep(d)
	}
}
