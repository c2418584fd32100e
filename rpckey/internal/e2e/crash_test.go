package e2e_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Servers that are killed between the effect and the answer. A child is this very binary
// again, told what to do by its environment.
const (
	childFile      = "RETRYSAFE_RPCKEY_FILE"
	childMode      = "RETRYSAFE_RPCKEY_MODE"
	childTransport = "RETRYSAFE_RPCKEY_TRANSPORT"
)

// crashPolicies are the three classes. A lease is short, so that a retry need not wait.
var crashPolicies = map[string]retrysafe.Policy{
	"unprotected": {Lease: time.Second},
	"keyed":       {Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, Lease: time.Second},
	"in_tx":       {Lease: time.Second}, // Options.Tx sets the effects
}

// A bank makes effects in a table of the store's own file.
type bank struct {
	store *sqlitestore.Store
	mode  string
	paid  func() // called after the effect, in in_tx mode before its commit
}

func openBank(ctx context.Context, file, mode string) (*bank, error) {
	s, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	if _, err := s.DB().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS effects (by TEXT UNIQUE)`); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &bank{store: s, mode: mode, paid: func() {}}, nil
}

const insertEffect = `INSERT INTO effects (by) VALUES (?) ON CONFLICT DO NOTHING`

func (b *bank) charge(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
	x, _ := retrysafe.FromContext(ctx)
	by := x.Record().Owner.String() // another one for each attempt
	if b.mode == "keyed" {
		by = x.DownstreamKey("charge")
	}
	_, err := b.store.DB().ExecContext(ctx, insertEffect, by)
	b.paid()
	return &payv1.ChargeResponse{ChargeId: "ch_" + by, Amount: o.amount}, err
}

// chargeInTx is charge for a handler that runs in a transaction.
func (b *bank) chargeInTx(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
	tx, err := rpckey.Tx[*sql.Tx](ctx)
	if err != nil {
		return nil, err
	}
	by := rand.Text() // another one for each attempt
	_, err = tx.ExecContext(ctx, insertEffect, by)
	b.paid()
	return &payv1.ChargeResponse{ChargeId: "ch_" + by, Amount: o.amount}, err
}

func (b *bank) effects(t *testing.T) (n int) {
	t.Helper()
	must(t, b.store.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM effects`).Scan(&n))
	return n
}

// runChild serves until it is killed. It says where it listens, and in a mode with a
// plus sign stops for ever after its effect, with two of them when the guard has
// answered.
func runChild(file, mode, name string) int {
	ctx := context.Background()
	plain := strings.TrimRight(mode, "+")
	b, err := openBank(ctx, file, plain)
	if err != nil {
		fmt.Println(err)
		return 3
	}
	stop := func() {
		fmt.Println("paid")
		select {} // its parent kills it here
	}
	go func() { // its parent has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	s := &service{c: &config{handler: b.charge}}
	var o rpckey.Options
	if plain == "in_tx" {
		s.c.handler, o.Tx = b.chargeInTx, rpckey.InTx(b.store)
	}
	switch len(mode) - len(plain) {
	case 1:
		b.paid = stop
	case 2:
		s.c.after = stop
	}
	engine, err := retrysafe.New(b.store, &retrysafe.Options{Policy: crashPolicies[plain], StoreTimeout: time.Minute, SettleTimeout: time.Minute})
	if err != nil {
		fmt.Println(err)
		return 3
	}
	if s.guard, err = rpckey.New(engine, tenant, &o); err != nil {
		fmt.Println(err)
		return 3
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return 3
	}
	fmt.Println(l.Addr())
	if name == "grpc" {
		_ = grpcServer(s).Serve(l)
	} else {
		_ = http.Serve(l, connectHandler(s)) //nolint:gosec // it is killed soon
	}
	return 0
}

// child is a server in a process of its own.
type child struct {
	*exec.Cmd
	addr string
	out  *bufio.Reader
}

func startChild(t *testing.T, file, mode string, tr transport) *child {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c := &child{Cmd: exec.CommandContext(t.Context(), self)}
	c.Env = append(os.Environ(), childFile+"="+file, childMode+"="+mode, childTransport+"="+tr.name)
	c.Stderr = t.Output()
	_, err = c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	c.out = bufio.NewReader(out)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	c.addr = c.says(t)
	return c
}

func (c *child) says(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return line[:len(line)-1]
}

// A server is killed with kill -9 between the effect and the answer. A retry at another
// server over the same file finds one effect, in each class.
func TestKilledServerBetweenEffectAndAnswer(t *testing.T) {
	t.Parallel()
	for _, tr := range transports[:2] {
		for _, mode := range []string{"unprotected+", "unprotected++", "keyed+", "keyed++", "in_tx+", "in_tx++"} {
			t.Run(tr.name+" "+mode, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "keys.db")
				first := startChild(t, file, mode, tr)
				lost := make(chan *outcome, 1)
				dialled := tr.dial(t, first.addr)
				go func() { lost <- dialled.call(t.Context(), pay(key, 1200)) }()
				if line := first.says(t); line != "paid" {
					t.Fatalf("the child says %q", line)
				}
				must(t, first.Process.Kill())
				if o := <-lost; o.code == codes.OK {
					t.Fatalf("the client of a killed server got %v", o.res)
				}

				plain := strings.TrimRight(mode, "+")
				c := tr.dial(t, startChild(t, file, plain, tr).addr)
				got := c.call(t.Context(), pay(key, 1200))
				for got.code == codes.Unavailable && got.info().GetMetadata()["code"] == "in-flight" {
					time.Sleep(10 * time.Millisecond) // a lease of a real store's clock
					got = c.call(t.Context(), pay(key, 1200))
				}
				b, err := openBank(t.Context(), file, plain)
				must(t, err)
				defer b.store.Close()
				if mode == "unprotected+" {
					got.refused(t, codes.Unknown, "outcome-unknown")
				} else {
					if got.code != codes.OK || got.replayed() != strings.HasSuffix(mode, "++") {
						t.Fatalf("got %s %q %v, replayed %v", got.code, got.text, got.details, got.replayed())
					}
					again := c.call(t.Context(), pay(key, 1200))
					again.same(t, got)
				}
				if n := b.effects(t); n != 1 {
					t.Errorf("%d effects, want 1", n)
				}
			})
		}
	}
}
