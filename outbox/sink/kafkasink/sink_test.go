package kafkasink_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/outbox/sink/kafkasink"
)

func TestMain(m *testing.M) { leftover.Main(m) }

func TestDangerousClientsAreRefused(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string][]kgo.Opt{
		"idempotent": {kgo.DisableIdempotentWrite()},
		"flushes":    {kgo.ManualFlushing()},
	} {
		client, err := kgo.NewClient(append(opts, kgo.SeedBrokers("127.0.0.1:1"))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		if _, err := kafkasink.New(client, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
