package testservers_test

import (
	"context"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A broker starts, is killed, and starts again where it was; that it speaks its
// protocol is part of its start.
func TestBrokersComeBackAfterAKill(t *testing.T) {
	t.Parallel()
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		r := testservers.NewRedis(t)
		comesBack(t, r)
	})
	t.Run("Dynalite", func(t *testing.T) {
		t.Parallel()
		d := testservers.NewDynalite(t)
		comesBack(t, d)
	})
	t.Run("RabbitMQ", func(t *testing.T) {
		t.Parallel()
		r := testservers.NewRabbitMQ(t)
		comesBack(t, r)
	})
}

func comesBack(t *testing.T, s interface {
	Addr() string
	Kill() error
	Restart(ctx context.Context) error
}) {
	t.Helper()
	addr := s.Addr()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	portIsKept(t, addr)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr {
		t.Errorf("it moved from %s to %s", addr, s.Addr())
	}
}
