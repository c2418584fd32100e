package redissink_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/sinktest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/redissink"
)

func TestMain(m *testing.M) {
	testservers.Main(m)
	leftover.None()
}

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	// The contexts say how long to wait; without one, as long as a busy machine takes.
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRedis(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	proxy, err := netfault.New(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	sink, err := redissink.New(client(t, proxy.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	consumer := client(t, server.Addr())
	sinktest.Run(t, sinktest.Broker{
		Sink: sink, Proxy: proxy, Kill: server.Kill, Restart: server.Restart,
		Stored: func(ctx context.Context) (list []sinktest.Stored, err error) {
			entries, err := consumer.XRange(ctx, sinktest.Topic, "-", "+").Result()
			for _, e := range entries {
				s := sinktest.Stored{Header: map[string]string{}}
				for name, value := range e.Values {
					text, _ := value.(string)
					switch name {
					case redissink.FieldKey:
						s.Key = text
					case redissink.FieldGroup:
						s.Group = text
					case redissink.FieldPayload:
						s.Payload = text
					default:
						s.Header[strings.TrimPrefix(name, "header:")] = text
					}
				}
				list = append(list, s)
			}
			return list, err
		},
	})
}

// A message that cannot be appended does not fail the others of its batch, and
// replicas that are not there confirm nothing.
func TestReceiptsAreOfEachMessage(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	c := client(t, server.Addr())
	if err := c.Set(t.Context(), "no-stream", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	batch := []outbox.Delivery{
		{Message: outbox.Message{Topic: "a", Key: "1"}},
		{Message: outbox.Message{Topic: "no-stream", Key: "2"}},
		{Message: outbox.Message{Topic: "a", Key: "3"}},
	}
	sink, err := redissink.New(c, &redissink.Options{MaxLen: 1000})
	if err != nil {
		t.Fatal(err)
	}
	got := sink.Deliver(t.Context(), batch)
	if got[0].Err != nil || got[0].ProviderRef == "" || got[1].Err == nil || got[2].Err != nil {
		t.Errorf("%+v", got)
	}
	alone, err := redissink.New(c, &redissink.Options{Replicas: 1, ReplicaWait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if got := alone.Deliver(t.Context(), batch[:1]); got[0].Err == nil {
		t.Error("a message is confirmed by a replica that is not there")
	}
}

func TestDangerousClientsAreRefused(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]*redis.Options{
		"MaxRetries":            {ContextTimeoutEnabled: true},
		"ContextTimeoutEnabled": {MaxRetries: -1},
		"ReplicaWait":           {MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: time.Millisecond},
	} {
		c := redis.NewClient(o)
		t.Cleanup(func() { c.Close() })
		if _, err := redissink.New(c, &redissink.Options{Replicas: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
