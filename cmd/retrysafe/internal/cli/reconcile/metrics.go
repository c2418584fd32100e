package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/duties"
	"github.com/retrysafe/retrysafe/telemetry"
)

// serveMetrics serves the metrics of the duties to Prometheus, under the names that a
// gateway's have, until stop is called. Without an address it does nothing.
func (f *runFlags) serveMetrics(ctx context.Context, env *command.Env, metrics *telemetry.Metrics, all *duties.Set) (stop func(), err error) {
	if f.metricsListen == "" {
		return func() {}, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.metricsListen)
	if err != nil {
		return nil, exit.Usagef("--metrics-listen: %v", err).Hintf("an address is free if no other program listens on it, such as 127.0.0.1:9464")
	}
	metrics.Janitor(all.List()...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(env.Err, "metrics are no longer served: %v\n", err)
		}
	}()
	fmt.Fprintf(env.Err, "metrics on http://%s/metrics\n", l.Addr())
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-ended
	}, nil
}
