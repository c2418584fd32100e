package linear

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
)

const roleClient = "linear.client"

// A task is what a client is told.
type task struct {
	Store string
	Seed  uint64
	// First is the number of its first worker.
	First uint32
	// Turn is the turn of keys that it begins with.
	Turn uint32
}

const (
	// workers is how many steps a client does at once.
	workers = 32
	// turnKeys is how many keys are in use at once, twice over. Histories stay short
	// because the next keys come when each has had its steps.
	turnKeys = 32
	// patience is how long a step may take that is not meant to be given up.
	patience = 30 * time.Second
)

// runClient is a client in a process of its own. What it did goes to its standard
// output; the turn of keys comes by its standard input, whose end is its own.
func runClient(ctx context.Context, told []byte) error {
	var t task
	if err := json.Unmarshal(told, &t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	p, err := openDB(ctx, t.Store)
	if err != nil {
		return err
	}
	c := newClient(p.TxStore(), pipe{os.Stdout}, t.Seed, t.First)
	c.turn.Store(t.Turn)
	go c.follow(os.Stdin)
	return errors.Join(c.work(ctx), p.Close())
}

// openDB opens the sandbox, again if its connection was cut: it may be more than once,
// while others are quicker.
func openDB(ctx context.Context, url string) (p *sandbox.DB, err error) {
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if p, err = sandbox.Open(ctx, url); err == nil {
			break
		}
	}
	return p, err
}

// A client does random steps until it is stopped.
type client struct {
	store retrysafe.TxStore[sandbox.AddEffect]
	log   journal
	seed  uint64
	first uint32
	turn  atomic.Uint32
	stop  atomic.Bool

	mu   sync.Mutex
	seen map[uint32][2]observation // the last two different sights of a key
}

func newClient(s retrysafe.TxStore[sandbox.AddEffect], log journal, seed uint64, first uint32) *client {
	return &client{store: s, log: log, seed: seed, first: first, seen: map[uint32][2]observation{}}
}

// follow takes over the turn of keys as r says, and stops with it.
func (c *client) follow(r io.Reader) {
	var turn [4]byte
	for {
		if _, err := io.ReadFull(r, turn[:]); err != nil {
			c.stop.Store(true)
			return
		}
		c.turn.Store(binary.LittleEndian.Uint32(turn[:]))
	}
}

// work returns when the client was stopped, or cannot go on.
func (c *client) work(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, workers)
	for n := range workers {
		w := &worker{client: c, number: c.first + uint32(n)}
		w.rand = rand.New(rand.NewPCG(c.seed, uint64(w.number)))
		all.Go(func() {
			if errs[n] = w.work(ctx); errs[n] != nil {
				c.stop.Store(true)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// remember keeps what was seen of a key, for steps to come.
func (c *client) remember(key uint32, s observation) {
	if s.isZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	two, known := c.seen[key]
	if !known && len(c.seen) > 8*turnKeys {
		clear(c.seen)
	}
	if two[0].Revision != s.Revision {
		two[1] = two[0]
	}
	two[0] = s
	c.seen[key] = two
}

func (c *client) recall(key uint32) [2]observation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[key]
}

// A worker does one step after the other.
type worker struct {
	*client
	number uint32
	marks  uint32
	rand   *rand.Rand
	last   *step // what the journal has not heard of
}

func (w *worker) work(ctx context.Context) error {
	for !w.stop.Load() && ctx.Err() == nil {
		if err := w.one(ctx); err != nil {
			return err
		}
	}
	return w.tell()
}

// tell lets the journal know what came of the last step, and what comes next. Only then
// may other workers know: no worker uses what is not in the journal.
func (w *worker) tell(next ...*step) error {
	last := w.last
	if last == nil && len(next) == 0 {
		return nil
	}
	if last != nil {
		next = append([]*step{last}, next...)
	}
	if err := w.log.note(next...); err != nil {
		return err
	}
	if w.last = nil; last != nil {
		w.remember(last.Key, last.Got)
	}
	return nil
}

// do does a step under the eyes of the journal.
func (w *worker) do(s *step, act func(s *step)) error {
	s.Worker, s.Call = w.number, now()
	if err := w.tell(s); err != nil {
		return err
	}
	act(s)
	s.Return = now()
	w.last = s
	return nil
}

// one draws a step and does it, and now and then some that belong to it.
func (w *worker) one(ctx context.Context) error {
	if w.chance(1, 100) {
		return w.purge(ctx)
	}
	key := w.key()
	seen := w.recall(key)
	ctx, cancel := w.deadline(ctx)
	defer cancel()
	if w.chance(1, 12) {
		return w.transaction(ctx, key, seen)
	}
	s := w.draw(key, seen)
	if err := w.do(s, func(s *step) { w.act(ctx, s) }); err != nil {
		return err
	}
	if s.End == unclear && s.writes() && w.chance(1, 2) {
		return w.again(context.WithoutCancel(ctx), s)
	}
	return nil
}

// again sends a step once more, as a caller does that cannot say whether it was applied.
func (w *worker) again(ctx context.Context, s *step) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	same := &step{frame: frame{Key: s.Key, Do: s.Do, Ask: s.Ask}}
	same.Ask.Mark = w.mark() // so that the two can be told apart
	return w.do(same, func(s *step) { w.act(ctx, s) })
}

// act does a step of the store itself.
func (w *worker) act(ctx context.Context, s *step) {
	var r retrysafe.Record
	var err error
	switch s.Do {
	case create:
		r, err = w.store.Create(ctx, s.Ask.create(s.Key))
	case swap:
		r, err = w.store.Swap(ctx, s.Ask.swap(s.Key))
	default:
		r, err = w.store.Load(ctx, refOf(s.Key))
	}
	s.saw(&r, err)
}

// saw notes what a step returned.
func (s *step) saw(r *retrysafe.Record, err error) {
	if s.End = endOf(err); s.End != unclear {
		s.Got = observe(r, s.Key)
	}
}

func (w *worker) purge(ctx context.Context) error {
	return w.do(&step{frame: frame{Do: purge}}, func(s *step) {
		_, err := w.store.Purge(ctx, 1000)
		s.End = endOf(err)
	})
}
