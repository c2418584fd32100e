package testservers

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A task is one process as /proc shows it. The start time tells it from a later
// process with the same number.
type task struct {
	pid, parent int
	state       byte
	start       string
}

// readTask returns false if there is no such process.
func readTask(pid int) (task, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return task{}, false
	}
	// The name in parentheses may hold anything; the fields that count follow it.
	_, rest, _ := cutLast(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return task{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return task{pid: pid, parent: parent, state: fields[0][0], start: fields[19]}, err == nil
}

// descendants returns all processes below pid. It is complete if pid cannot
// fork meanwhile.
func descendants(pid int) ([]task, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]task{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if t, ok := readTask(n); ok {
			children[t.parent] = append(children[t.parent], t)
		}
	}
	below := children[pid]
	for i := 0; i < len(below); i++ {
		below = append(below, children[below[i].pid]...)
	}
	return below, nil
}

// gone reports whether the process has ended. One that nobody has waited for
// yet has ended too: it holds no memory and no lock.
func (t task) gone() bool {
	now, ok := readTask(t.pid)
	return !ok || now.start != t.start || now.state == 'Z' || now.state == 'X'
}

// stopped reports whether the process stands still, or has ended.
func (t task) stopped() bool {
	now, ok := readTask(t.pid)
	return !ok || now.state == 'T' || t.gone()
}

// signal does nothing if the process has ended.
func (t task) signal(sig syscall.Signal) {
	if !t.gone() {
		_ = syscall.Kill(t.pid, sig)
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
