package kafkasink_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/internal/test/sinktest"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/kafkasink"
)

func TestMain(m *testing.M) { leftover.Main(m) }

const partitions = 4

// A broker is a Kafka in this process, which can end and come back with its data.
type broker struct {
	*kfake.Cluster
	opts []kfake.Opt
	addr string
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	port := porthold.New(t)
	b := &broker{addr: port.Addr(), opts: []kfake.Opt{
		kfake.Ports(port.Number()), kfake.ListenFn(func(string, string) (net.Listener, error) { return port.Listen(context.Background()) }),
		kfake.DataDir(t.TempDir()), kfake.SyncWrites(), kfake.SeedTopics(partitions, sinktest.Topic),
	}}
	if err := b.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.kill() })
	return b
}

func (b *broker) start(context.Context) (err error) {
	b.Cluster, err = kfake.NewCluster(b.opts...)
	return err
}

func (b *broker) kill() error {
	b.Close()
	return nil
}

// connect returns a client that reaches the broker at addr, whatever address the
// broker says that it has.
func connect(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// consume returns all records there are, oldest first within each partition.
func consume(ctx context.Context, t *testing.T, addr string) ([]*kgo.Record, error) {
	client := connect(t, addr, kgo.ConsumeTopics(sinktest.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	list := kmsg.NewPtrListOffsetsRequest()
	list.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = sinktest.Topic
	for n := range int32(partitions) {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = n, -1
		topic.Partitions = append(topic.Partitions, p)
	}
	list.Topics = append(list.Topics, topic)
	ends, err := list.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	left := map[int32]int64{} // the next offset that was not consumed
	for _, p := range ends.Topics[0].Partitions {
		if p.Offset > 0 {
			left[p.Partition] = p.Offset
		}
	}
	var records []*kgo.Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records = append(records, r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return records, nil
}

func TestKafka(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	proxy, err := netfault.New(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	sink, err := kafkasink.New(connect(t, proxy.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	sinktest.Run(t, sinktest.Broker{
		Sink: sink, Proxy: proxy, Kill: b.kill, Restart: b.start,
		Stored: func(ctx context.Context) (list []sinktest.Stored, err error) {
			records, err := consume(ctx, t, b.addr)
			for _, r := range records {
				s := sinktest.Stored{Group: string(r.Key), Payload: string(r.Value), Header: map[string]string{}}
				for _, h := range r.Headers {
					s.Header[h.Key] = string(h.Value)
				}
				s.Key = s.Header[kafkasink.HeaderKey]
				list = append(list, s)
			}
			return list, err
		},
	})
}

// Records of one group share a partition, and what the broker refuses for good is
// not tried again.
func TestReceiptsAreOfEachMessage(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	sink, err := kafkasink.New(connect(t, b.addr, kgo.UnknownTopicRetries(1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var batch []outbox.Delivery
	for n := range 12 {
		batch = append(batch, outbox.Delivery{Message: outbox.Message{Topic: sinktest.Topic, Group: fmt.Sprint(n % 3), Key: fmt.Sprint(n)}})
	}
	batch = append(batch, outbox.Delivery{Message: outbox.Message{Topic: "no-such-topic", Key: "k"}})
	got := sink.Deliver(t.Context(), batch)
	for n, r := range got[:12] {
		if r.Err != nil || !strings.HasPrefix(r.ProviderRef, sinktest.Topic+"/") {
			t.Errorf("message %d: %+v", n, r)
		}
	}
	if got[12].Err == nil || outbox.IsPermanent(got[12].Err) {
		t.Errorf("a topic that may be made yet: %v", got[12].Err)
	}
	records, err := consume(t.Context(), t, b.addr)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int32{}
	for _, r := range records {
		if p, seen := at[string(r.Key)]; seen && p != r.Partition {
			t.Errorf("group %s is in two partitions", r.Key)
		}
		at[string(r.Key)] = r.Partition
	}
	if len(records) != 12 || len(at) != 3 {
		t.Errorf("%d records of %d groups", len(records), len(at))
	}

	b.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		produce := r.(*kmsg.ProduceRequest)
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range produce.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, kerr.MessageTooLarge.Code
				topic.Partitions = append(topic.Partitions, partition)
			}
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
	if got := sink.Deliver(t.Context(), batch[:1]); !outbox.IsPermanent(got[0].Err) {
		t.Errorf("too large for the broker: %v", got[0].Err)
	}
}

// What is on its way when its client is closed was not delivered.
func TestClosedClientDeliversNothing(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	proxy, err := netfault.New(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	client := connect(t, proxy.Addr())
	sink, err := kafkasink.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	batch := []outbox.Delivery{{Message: outbox.Message{Topic: sinktest.Topic, Key: "k"}}}
	if got := sink.Deliver(t.Context(), batch); got[0].Err != nil {
		t.Fatal(got[0].Err)
	}
	proxy.Strike(netfault.Stall)
	proxy.Plan(netfault.Always(netfault.Stall))
	receipts := make(chan []outbox.Receipt)
	go func() { receipts <- sink.Deliver(t.Context(), batch) }()
	for client.BufferedProduceRecords() == 0 {
		runtime.Gosched()
	}
	client.Close()
	if got := <-receipts; got[0].Err == nil {
		t.Error("delivered by a client that was closed")
	}
	if got := sink.Deliver(t.Context(), batch); got[0].Err == nil {
		t.Error("delivered by a closed client")
	}
}
