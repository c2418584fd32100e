//go:build linux

package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// forgetfulRedis is a control: what reservations are worth on a Redis that evicts
// or keeps nothing on disk. There is no store of ours here; each grant is
// a bare SET NX, and the second one for a key is one that a client would have paid
// for twice.
func forgetfulRedis(ctx context.Context, r *prove.Result) (err error) {
	server, err := testservers.StartRedis(ctx)
	if errors.Is(err, testservers.ErrMissing) {
		r.Why = "the control on Redis was left out: " + err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("start Redis: %w", err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	evicted, err := evictReservations(ctx, server)
	if err != nil {
		return err
	}
	forgotten, err := forgetReservations(ctx, server)
	if err != nil {
		return err
	}
	r.Count("control: reservations granted twice by a Redis that evicts", evicted)
	r.Count("control: reservations granted twice by a Redis that keeps nothing on disk", forgotten)
	if evicted == 0 || forgotten == 0 {
		r.Violatef("control", "", "a Redis that evicts has granted %d reservations twice and one that keeps nothing %d: the control shows no loss", evicted, forgotten)
	}
	return nil
}

// reservations is how many keys a control reserves.
const reservations = 100

// evictReservations lets live reservations be evicted by other data, and returns how
// many are granted a second time.
func evictReservations(ctx context.Context, server *testservers.Redis) (int, error) {
	c, err := dialRedis(ctx, server.Addr())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.all("CONFIG SET appendonly no", "CONFIG SET maxmemory-policy allkeys-lru", "CONFIG SET maxmemory 4mb"); err != nil {
		return 0, err
	}
	if _, err := c.reserve("evicted", "first"); err != nil {
		return 0, err
	}
	filling := strings.Repeat("x", 1000)
	for batch := range 100 {
		var fill []string
		for i := range 100 {
			fill = append(fill, fmt.Sprintf("SET other:%d:%d %s", batch, i, filling))
		}
		if err := c.all(fill...); err != nil {
			return 0, err
		}
	}
	return c.reserve("evicted", "second")
}

// forgetReservations kills a server that keeps nothing on disk, and returns how many
// reservations it grants a second time when it is back.
func forgetReservations(ctx context.Context, server *testservers.Redis) (int, error) {
	if _, err := reserveAt(ctx, server, "first"); err != nil {
		return 0, err
	}
	if err := errors.Join(server.Kill(), server.Restart(ctx)); err != nil {
		return 0, err
	}
	return reserveAt(ctx, server, "second")
}

func reserveAt(ctx context.Context, server *testservers.Redis, owner string) (int, error) {
	c, err := dialRedis(ctx, server.Addr())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.reserve("forgotten", owner)
}

// A redisConn speaks to Redis as a person would, and sends nothing twice.
type redisConn struct {
	net.Conn
	replies *bufio.Reader
}

func dialRedis(ctx context.Context, addr string) (*redisConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until) // it works without
	}
	return &redisConn{conn, bufio.NewReader(conn)}, nil
}

// do sends commands together and returns their replies, of one line each.
func (c *redisConn) do(commands ...string) ([]string, error) {
	if _, err := c.Write([]byte(strings.Join(commands, "\r\n") + "\r\n")); err != nil {
		return nil, err
	}
	replies := make([]string, len(commands))
	for i := range replies {
		line, err := c.replies.ReadString('\n')
		if err != nil {
			return nil, err
		}
		replies[i] = strings.TrimSpace(line)
	}
	return replies, nil
}

// all sends commands that must succeed.
func (c *redisConn) all(commands ...string) error {
	replies, err := c.do(commands...)
	for _, reply := range replies {
		if reply != granted {
			return fmt.Errorf("redis replies %q", reply)
		}
	}
	return err
}

// The replies to SET NX.
const (
	granted = "+OK"
	refused = "$-1"
)

// reserve asks for all reservations under a name, and returns how many are granted.
func (c *redisConn) reserve(name, owner string) (got int, err error) {
	var sets []string
	for i := range reservations {
		sets = append(sets, fmt.Sprintf("SET %s:%d %s NX", name, i, owner))
	}
	replies, err := c.do(sets...)
	for _, reply := range replies {
		switch reply {
		case granted:
			got++
		case refused:
		default:
			return got, fmt.Errorf("redis replies %q", reply)
		}
	}
	return got, err
}
