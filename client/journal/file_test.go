package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
)

func open(t testing.TB, path string, o *journal.Options) *journal.File {
	t.Helper()
	j, err := journal.Open(path, o)
	must(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

// reopened returns what a journal with this text has.
func reopened(t *testing.T, text []byte) ([]client.Operation, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	must(t, os.WriteFile(path, text, 0o600))
	j, err := journal.Open(path, nil)
	if err != nil {
		after, _ := os.ReadFile(path)
		if !bytes.Equal(after, text) {
			t.Errorf("a journal that was refused has been changed: %v", err)
		}
		return nil, err
	}
	defer j.Close()
	op := operation("new") // and it goes on
	_, _, err = j.Begin(t.Context(), op)
	must(t, err)
	ops := list(t, j)
	must(t, j.Close())
	again := open(t, path, nil)
	defer again.Close()
	if got := list(t, again); len(got) != len(ops) {
		t.Errorf("%d operations, and %d after another start", len(ops), len(got))
	}
	return ops[:len(ops)-1], nil
}

// looked is the same as a reader sees it, which changes nothing.
func looked(t *testing.T, path string, text []byte) ([]client.Operation, error) {
	t.Helper()
	must(t, os.WriteFile(path, text, 0o600))
	j, err := journal.Open(path, &journal.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return list(t, j), nil
}

// A journal that ends at any byte has every operation whose Begin had returned: a torn line
// was never durable, so its operation was never sent.
func TestATornLineLosesNothingThatWasSent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, nil)
	type step struct {
		size            int64
		begun, finished int
	}
	steps := []step{{size: 0}}
	note := func(begun, finished int) {
		info, err := os.Stat(path)
		must(t, err)
		steps = append(steps, step{info.Size(), begun, finished})
	}
	note(0, 0)
	for n := range 3 {
		op := client.Operation{ID: fmt.Sprint(n), Key: "k", Method: "POST", URL: "http://a/", Begun: begun} // a short line
		_, _, err := j.Begin(t.Context(), op)
		must(t, err)
		note(n+1, n)
		op.Answer, op.Ended = &client.Answer{Status: 201}, time.Now()
		must(t, j.End(t.Context(), op))
		note(n+1, n+1)
	}
	must(t, j.Close())
	text, err := os.ReadFile(path)
	must(t, err)
	read := filepath.Join(t.TempDir(), "read")
	for length := range len(text) + 1 {
		var want step
		for _, s := range steps {
			if s.size <= int64(length) {
				want = s
			}
		}
		for _, torn := range [][]byte{
			text[:length],
			append(bytes.Clone(text[:length]), make([]byte, 100)...), // the file had grown, its content had not arrived
		} {
			ops, err := looked(t, read, torn)
			if length%97 == 0 || slices.ContainsFunc(steps, func(s step) bool { return s.size-1 <= int64(length) && int64(length) <= s.size+1 }) {
				ops, err = reopened(t, torn)
			}
			if err != nil && length >= len("retrysafe journal 1\n") {
				t.Fatalf("torn at %d: %v", length, err)
			} else if err != nil {
				continue // zeros in place of the first line: no journal
			}
			finished := 0
			for _, op := range ops {
				if !op.Unfinished() {
					finished++
				}
			}
			if len(ops) != want.begun || finished != want.finished {
				t.Fatalf("torn at %d: %d operations, %d with an answer; %d had begun, %d ended", length, len(ops), finished, want.begun, want.finished)
			}
		}
	}
	// A byte that is wrong in the last line is a torn line; in another one it is damage.
	last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	for at := range text {
		bad := bytes.Clone(text)
		bad[at] ^= 4
		ops, err := looked(t, read, bad)
		switch {
		case at == len(text)-1 && err == nil:
			t.Fatal("the damaged end of the last line is not noticed")
		case at >= last && at < len(text)-1 && (err != nil || len(ops) != 3 || !ops[2].Unfinished()):
			t.Fatalf("byte %d, in the last line: %v", at, err)
		case at < last && err == nil:
			t.Fatalf("byte %d: the damage is not noticed", at)
		}
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"retrysafe journal 2\n": "newer version", "hello\n": "not a journal", "\x7fELF and so on, longer than a heading": "not a journal",
		"retrysafe journal 1\n00000000 x\n0 y\n": "line 2", "retrysafe journal 1\n" + line(`[{}]`) + "x": "line 2", "retrysafe journal 1\n" + line(`[{"later":1}]`) + "x": "newer version",
	} {
		if _, err := reopened(t, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := journal.Open(filepath.Join(t.TempDir(), "no", "journal"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := journal.Open("x", &journal.Options{Keep: -1}); err == nil {
		t.Error("a negative Keep is taken")
	}
}

// A journal is opened once at a time, in one process too, and can be looked at meanwhile.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, nil)
	begin(t, j, operation("1"), false)
	if _, err := journal.Open(path, nil); !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), "a journal of its own") {
		t.Errorf("a second one: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(path, link))
	if _, err := journal.Open(link, nil); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("a second one, by a link: %v", err)
	}
	reader := open(t, path, &journal.Options{ReadOnly: true})
	if got := list(t, reader); len(got) != 1 {
		t.Errorf("the reader sees %+v", got)
	}
	if _, _, err := reader.Begin(t.Context(), operation("2")); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("%v", err)
	}
	must(t, j.Close())
	if _, _, err := j.Begin(t.Context(), operation("2")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second := open(t, path, nil)
	if _, _, err := second.Begin(ctx, operation("2")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, _, err := second.Begin(t.Context(), client.Operation{}); err == nil {
		t.Error("an operation without an ID is taken")
	}
}

// The file is written anew when most of it is about operations that are over and forgotten,
// and nothing that counts is lost by it.
func TestCompaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, &journal.Options{Keep: time.Hour})
	var all sync.WaitGroup
	for caller := range 4 {
		all.Go(func() {
			for n := range 30 {
				op := operation(fmt.Sprintf("order-%d-%d", caller, n))
				op.Body = bytes.Repeat([]byte("x"), 50_000)
				if _, _, err := j.Begin(t.Context(), op); err != nil {
					t.Error(err)
				}
				switch {
				case n%10 == 0: // stays unfinished
				case n%10 == 1:
					op.Body = nil
					op.Answer, op.Ended = &client.Answer{Status: 201, Body: []byte("kept")}, time.Now()
					if err := j.End(t.Context(), op); err != nil {
						t.Error(err)
					}
				default:
					if ok, err := j.Release(t.Context(), op); !ok || err != nil {
						t.Errorf("%t, %v", ok, err)
					}
				}
			}
		})
	}
	all.Wait()
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() > 5<<20 {
		t.Errorf("the file has %d bytes, for 24 operations of 70,000", info.Size())
	}
	must(t, j.Close())
	j = open(t, path, &journal.Options{Keep: time.Hour})
	check := func(unfinished, ended int) {
		t.Helper()
		for _, op := range list(t, j) {
			if op.Unfinished() {
				unfinished--
			} else if ended--; string(op.Answer.Body) != "kept" {
				t.Errorf("%+v", op)
			}
			if len(op.Body) != 50_000 {
				t.Errorf("%s has a body of %d bytes", op.ID, len(op.Body))
			}
		}
		if unfinished != 0 || ended != 0 {
			t.Errorf("%d unfinished and %d ended operations are missing", unfinished, ended)
		}
	}
	check(12, 12)
	must(t, j.Close())
	// What has been over for longer than Keep is gone; what is unfinished never goes.
	j = open(t, path, &journal.Options{Keep: time.Nanosecond})
	check(12, 0)
}

// Beginnings that come together share a write, and each is durable when Begin returns.
func TestBeginningsTogether(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, nil)
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			if _, _, err := j.Begin(t.Context(), operation(fmt.Sprint(n))); err != nil {
				t.Error(err)
			}
			reader, err := journal.Open(path, &journal.Options{ReadOnly: true})
			if err != nil {
				t.Error(err)
				return
			}
			if _, found, _ := reader.Begin(t.Context(), operation(fmt.Sprint(n))); !found {
				t.Errorf("operation %d is not in the file when Begin has returned", n)
			}
		})
	}
	all.Wait()
}
