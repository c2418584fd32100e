package listener_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// A hello is an App without a background.
type hello struct{ http.Handler }

func (hello) Run(context.Context) error { return nil }

func (hello) Drain(context.Context) error { return nil }

func (hello) Ready() error { return nil }

func ExampleServer_Run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := make(chan listener.Addresses, 1)
	server, err := listener.New(listener.Options{
		Load: func() (*config.Config, error) { return &config.Config{Listen: "127.0.0.1:0"}, nil },
		Build: func(context.Context, *config.Config) (listener.App, error) {
			return hello{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })}, nil
		},
		Ready:  func(at listener.Addresses) { ready <- at },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error)
	go func() { done <- server.Run(ctx) }()

	at := <-ready
	for _, path := range []string{"/", "/.retrysafe/readyz"} {
		res, err := http.Get(at.Main + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		fmt.Printf("%s: %d %q\n", path, res.StatusCode, body)
	}
	http.DefaultClient.CloseIdleConnections()

	cancel() // as SIGTERM would
	fmt.Println(<-done)
	// Output:
	// /: 200 "hello"
	// /.retrysafe/readyz: 200 "ok\n"
	// <nil>
}

func ExampleAccessLog_Write() {
	log := listener.AccessLog{Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))}
	log.Write(context.Background(), listener.Line{
		Method: "POST", Path: "/payments", Route: "POST /payments", Status: 201, Bytes: 54, Took: 3 * time.Millisecond,
		Tenant: "5c2ee1a7", Key: "9f86d081884c7d65", Outcome: "replayed", Guarded: true,
	})
	// Output:
	// level=INFO msg=request method=POST path=/payments status=201 took=3ms bytes=54 route="POST /payments" outcome=replayed tenant=5c2ee1a7 key=9f86d081884c7d65
}
