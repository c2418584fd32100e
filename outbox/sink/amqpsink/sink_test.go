package amqpsink_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/sinktest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/amqpsink"
)

func TestMain(m *testing.M) {
	testservers.Main(m)
	leftover.None()
}

func sink(t *testing.T, url string, opts *amqpsink.Options) *amqpsink.Sink {
	t.Helper()
	s, err := amqpsink.New(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func declare(t *testing.T, url, queue string) {
	t.Helper()
	onChannel(t, url, func(c *amqp.Channel) error {
		_, err := c.QueueDeclare(queue, true, false, false, false, nil)
		return err
	})
}

func onChannel(t *testing.T, url string, do func(c *amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := do(c); err != nil {
		t.Fatal(err)
	}
}

// A broker takes seconds to start, so the tests share one, one after the other.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	broker := testservers.NewRabbitMQ(t)
	proxy, err := netfault.New(broker.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	url := broker.URL(broker.Addr())
	declare(t, url, sinktest.Topic)
	t.Run("unroutable", func(t *testing.T) { unroutable(t, url) })
	t.Run("nacked", func(t *testing.T) { nacked(t, url) })
	t.Run("no exchange", func(t *testing.T) { noExchange(t, url) })
	t.Run("closed", func(t *testing.T) { closed(t, url) })

	var consumed []sinktest.Stored
	sinktest.Run(t, sinktest.Broker{
		Sink: sink(t, broker.URL(proxy.Addr()), nil), Proxy: proxy, Kill: broker.Kill, Restart: broker.Restart,
		Stored: func(context.Context) ([]sinktest.Stored, error) {
			onChannel(t, url, func(c *amqp.Channel) error {
				for {
					d, ok, err := c.Get(sinktest.Topic, true)
					if err != nil || !ok {
						return err
					}
					s := sinktest.Stored{Key: d.MessageId, Payload: string(d.Body), Header: map[string]string{}}
					for name, value := range d.Headers {
						s.Header[name], _ = value.(string)
					}
					if d.DeliveryMode != amqp.Persistent {
						return fmt.Errorf("%s is not persistent", d.MessageId)
					}
					consumed = append(consumed, s)
				}
			})
			return consumed, nil
		},
	})
}

func message(topic, key string) outbox.Delivery {
	return outbox.Delivery{Message: outbox.Message{Topic: topic, Key: key}}
}

// The broker confirms what it returns, too: it must not count as delivered, nor
// fail its neighbours.
func unroutable(t *testing.T, url string) {
	declare(t, url, "taken")
	s := sink(t, url, nil)
	for range 3 { // the session is used again
		got := s.Deliver(t.Context(), []outbox.Delivery{message("taken", "1"), message("nowhere", "2"), message("taken", "3")})
		if got[0].Err != nil || !errors.Is(got[1].Err, amqpsink.ErrUnroutable) || outbox.IsPermanent(got[1].Err) || got[2].Err != nil {
			t.Errorf("%+v", got)
		}
	}
}

// A queue that is full and refuses says no.
func nacked(t *testing.T, url string) {
	onChannel(t, url, func(c *amqp.Channel) error {
		_, err := c.QueueDeclare("full", true, false, false, false, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
		return err
	})
	s := sink(t, url, nil)
	refused := 0
	for n := range 10 {
		if got := s.Deliver(t.Context(), []outbox.Delivery{message("full", fmt.Sprint(n))}); got[0].Err != nil {
			refused++
		}
	}
	var depth int
	onChannel(t, url, func(c *amqp.Channel) error {
		q, err := c.QueueDeclarePassive("full", true, false, false, false, nil)
		depth = q.Messages
		return err
	})
	if refused == 0 || refused > 10-depth {
		t.Errorf("%d of 10 were refused, %d are there", refused, depth)
	}
}

func noExchange(t *testing.T, url string) {
	s := sink(t, url, &amqpsink.Options{Exchange: "missing"})
	got := s.Deliver(t.Context(), []outbox.Delivery{message("a", "1")})
	if got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "missing") {
		t.Errorf("%v", got[0].Err)
	}
	long := message("a", "2")
	long.Header = map[string]string{strings.Repeat("x", 256): ""}
	if got := s.Deliver(t.Context(), []outbox.Delivery{long}); !outbox.IsPermanent(got[0].Err) {
		t.Errorf("%v", got[0].Err)
	}
}

func closed(t *testing.T, url string) {
	s := sink(t, url, nil)
	s.Close()
	if got := s.Deliver(t.Context(), []outbox.Delivery{message("a", "1")}); !errors.Is(got[0].Err, amqpsink.ErrClosed) {
		t.Errorf("%v", got[0].Err)
	}
}

// If a server takes the connection and says nothing, Deliver returns when the context
// ends.
func TestSilentBrokerEndsWithTheContext(t *testing.T) {
	t.Parallel()
	proxy, err := netfault.New("127.0.0.1:1") // it is never reached
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	proxy.Plan(netfault.Always(netfault.Stall))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := sink(t, "amqp://"+proxy.Addr(), nil).Deliver(ctx, []outbox.Delivery{message("a", "1")})
	if got[0].Err == nil {
		t.Error("delivered without a broker")
	}
}

func TestURLThatCannotBeReadIsNotQuoted(t *testing.T) {
	t.Parallel()
	if _, err := amqpsink.New("amqp://user:secret@host:port-/%zz", nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
