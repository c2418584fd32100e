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
	state       byte // of its first thread
	threads     int
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
	parent, parentErr := strconv.Atoi(fields[1])
	threads, threadsErr := strconv.Atoi(fields[17])
	return task{pid, parent, fields[0][0], threads, fields[19]}, parentErr == nil && threadsErr == nil
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

// gone reports whether the process has ended. One that has not been waited for has
// ended too, with its last thread: it holds no memory, no lock and no port. The first
// thread may end before others, which have all of that until they end.
func (t task) gone() bool {
	now, ok := readTask(t.pid)
	return !ok || now.start != t.start || (now.state == 'Z' || now.state == 'X') && now.threads <= 1
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
