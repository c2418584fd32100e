package natssink_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/internal/test/sinktest"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/natssink"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// A broker is a NATS server in this process, which can end and come back.
type broker struct {
	*server.Server
	opts server.Options
	addr string
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	port := porthold.New(t)
	if err := port.Lend(); err != nil {
		t.Fatal(err)
	}
	b := &broker{addr: port.Addr(), opts: server.Options{Host: "127.0.0.1", Port: port.Number(), JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	if err := b.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.kill() })
	return b
}

func (b *broker) start(context.Context) (err error) {
	opts := b.opts
	if b.Server, err = server.NewServer(&opts); err != nil {
		return err
	}
	b.Start()
	if !b.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("the server is not ready")
	}
	return nil
}

func (b *broker) kill() error {
	b.Shutdown()
	b.WaitForShutdown()
	return nil
}

// connect returns a client that waits for a broker on a busy machine.
func connect(t *testing.T, addr string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect("nats://"+addr, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func addStream(t *testing.T, js jetstream.JetStream, c jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	s, err := js.CreateStream(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestJetStream(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	proxy, err := netfault.New(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	stream := addStream(t, connect(t, b.addr), jetstream.StreamConfig{Name: "S", Subjects: []string{sinktest.Topic}})
	sink, err := natssink.New(connect(t, proxy.Addr()), &natssink.Options{Stream: "S"})
	if err != nil {
		t.Fatal(err)
	}
	sinktest.Run(t, sinktest.Broker{
		Sink: sink, Proxy: proxy, Kill: b.kill, Restart: b.start, Dedups: true,
		Stored: func(ctx context.Context) (list []sinktest.Stored, err error) {
			info, err := stream.Info(ctx)
			for err != nil && ctx.Err() == nil { // the consumer's own connection comes back, too
				info, err = stream.Info(ctx)
			}
			if err != nil {
				return nil, err
			}
			for n := uint64(1); n <= info.State.LastSeq; n++ {
				m, err := stream.GetMsg(ctx, n)
				if err != nil {
					return nil, err
				}
				s := sinktest.Stored{Key: m.Header.Get(natssink.HeaderKey), Payload: string(m.Data), Header: map[string]string{}}
				for name, values := range m.Header {
					s.Header[name] = values[0]
				}
				list = append(list, s)
			}
			return list, nil
		},
	})
}

func TestReceiptsAreOfEachMessage(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	js := connect(t, b.addr)
	stream := addStream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"a", "b"}, MaxMsgSize: 1000})
	sink, err := natssink.New(js, nil)
	if err != nil {
		t.Fatal(err)
	}
	message := func(topic, key string, size int, header map[string]string) outbox.Delivery {
		return outbox.Delivery{Message: outbox.Message{Topic: topic, Key: key, Payload: make([]byte, size), Header: header}}
	}
	got := sink.Deliver(t.Context(), []outbox.Delivery{
		message("a", "k", 1, nil),
		message("b", "k", 1, nil), // the same key, another subject: another message
		message("nobody.listens", "k", 1, nil),
		message("a", "large", 2000, nil),
		message("a", "steers", 1, map[string]string{"nats-rollup": "all"}),
		message("a", "splits", 1, map[string]string{"x": "1\r\ny: 2"}),
	})
	for i, permanent := range []bool{false, false, false, true, true, true} {
		if delivered := i < 2; (got[i].Err == nil) != delivered || outbox.IsPermanent(got[i].Err) != permanent {
			t.Errorf("message %d: %v", i, got[i].Err)
		}
	}
	again := sink.Deliver(t.Context(), []outbox.Delivery{message("a", "k", 1, nil)})
	if again[0].Err != nil {
		t.Errorf("a message that is there is refused: %v", again[0].Err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != 2 {
		t.Errorf("%d messages are stored, want 2", info.State.Msgs)
	}
}

// A subscriber that answers is no stream: its answer does not confirm a delivery.
func TestOnlyAStreamConfirms(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	js := connect(t, b.addr)
	if _, err := js.Conn().Subscribe("a", func(m *nats.Msg) { _ = m.Respond([]byte("ok")) }); err != nil {
		t.Fatal(err)
	}
	sink, err := natssink.New(js, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := sink.Deliver(t.Context(), []outbox.Delivery{{Message: outbox.Message{Topic: "a", Key: "k"}}}); got[0].Err == nil {
		t.Error("a subscriber's answer counts as the broker's confirmation")
	}
}
