package move_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// What a child process of these tests is told, by its environment.
const (
	envRole    = "RETRYSAFE_MOVE_ROLE" // "mover" or "payer"
	envFrom    = "RETRYSAFE_MOVE_FROM"
	envTo      = "RETRYSAFE_MOVE_TO"
	envPoint   = "RETRYSAFE_MOVE_POINT"
	envEffects = "RETRYSAFE_MOVE_EFFECTS"
	envPause   = "RETRYSAFE_MOVE_PAUSE"
)

// child starts this program again in a role.
func child(t *testing.T, role string, env ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(append(os.Environ(), envRole+"="+role), env...)
	c.Stderr = t.Output()
	return c
}

func runChild() int {
	roles := map[string]func(context.Context) error{"mover": runMover, "payer": runPayer}
	if err := roles[os.Getenv(envRole)](context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

// A fuse kills the process, with no warning, when it is passed for the n-th time.
type fuse struct{ left int }

func (f *fuse) pass() {
	if f.left--; f.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// mined is a store with a fuse before and after each step of a move.
type mined struct {
	store
	fuse *fuse
}

func around[T any](f *fuse, do func() (T, error)) (T, error) {
	f.pass()
	defer f.pass()
	return do()
}

func (m mined) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	return around(m.fuse, func() ([]retrysafe.Record, error) { return m.store.List(ctx, q) })
}

func (m mined) Mover() storemove.Store { return minedMover{m.store.Mover(), m.fuse} }

type minedMover struct {
	storemove.Store
	fuse *fuse
}

func (m minedMover) step(do func() error) error {
	_, err := around(m.fuse, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (m minedMover) Follow(ctx context.Context, run retrysafe.Owner) (retrysafe.Owner, error) {
	return around(m.fuse, func() (retrysafe.Owner, error) { return m.Store.Follow(ctx, run) })
}

func (m minedMover) Written(ctx context.Context, run retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	err = m.step(func() error {
		written, gone, err = m.Store.Written(ctx, run, limit)
		return err
	})
	return written, gone, err
}

func (m minedMover) Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(context.Context, []retrysafe.Record, []retrysafe.Ref) error) error {
	return m.step(func() error {
		return m.Store.Retire(ctx, run, to, func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error {
			return m.step(func() error { return rest(ctx, written, gone) })
		})
	})
}

func (m minedMover) Fill(ctx context.Context, run, source retrysafe.Owner, from string) error {
	return m.step(func() error { return m.Store.Fill(ctx, run, source, from) })
}

func (m minedMover) Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	return m.step(func() error { return m.Store.Import(ctx, run, records, gone) })
}

func (m minedMover) Filled(ctx context.Context, run retrysafe.Owner) error {
	return m.step(func() error { return m.Store.Filled(ctx, run) })
}

// runMover moves, and dies at a point. When all is copied it writes to the source
// like a server, so that there is something left for the cut.
func runMover(ctx context.Context) error {
	from, err := place(os.Getenv(envFrom)).open(ctx)
	if err != nil {
		return err
	}
	to, err := place(os.Getenv(envTo)).open(ctx)
	if err != nil {
		return err
	}
	point, err := strconv.Atoi(os.Getenv(envPoint))
	if err != nil {
		return err
	}
	f := &fuse{point}
	_, err = move.Records(ctx, mined{from, f}, mined{to, f}, &move.Options{Batch: 20, From: "the source", To: "the destination", Progress: func(p move.Progress) {
		if p.Stage == move.Cutting && err == nil {
			err = churn(ctx, from, fmt.Sprint("point ", point))
		}
	}})
	return err
}

// churn writes to a store as a server, a sweeper and a reaper do: a key is new, one
// that was in flight is settled, and what is forgotten goes.
func churn(ctx context.Context, s retrysafe.Store, name string) error {
	open, err := s.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress}, Limit: 1})
	if err != nil {
		return err
	}
	for _, r := range open {
		w := r.Update()
		w.State, w.Result, w.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 201, Body: []byte("settled by " + name)}, r.Retain
		if _, err := s.Swap(ctx, w); err != nil {
			return err
		}
	}
	for _, w := range []retrysafe.Write{reserved(name), forgotten(name)} {
		if _, err := s.Create(ctx, w); err != nil {
			return err
		}
	}
	_, err = s.Purge(ctx, 1)
	return err
}

// runPayer pays under one key after the other until it is killed, and says what a
// client was shown.
func runPayer(ctx context.Context) error {
	s, err := place(os.Getenv(envFrom)).openWith(ctx, false)
	if err != nil {
		return err
	}
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: livePolicy})
	if err != nil {
		return err
	}
	effects, err := openLedger(os.Getenv(envEffects))
	if err != nil {
		return err
	}
	pause, err := time.ParseDuration(os.Getenv(envPause))
	if err != nil {
		return err
	}
	shown := bufio.NewWriter(os.Stdout)
	for n := 0; ; n++ {
		key := fmt.Sprint("child ", n)
		out, err := pay(ctx, e, key, func() { effects.add(key) })
		if err != nil {
			fmt.Fprintf(shown, "failed %s\n", key)
		} else {
			fmt.Fprintf(shown, "shown %s: %s\n", key, out.Body)
		}
		if err := shown.Flush(); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}
