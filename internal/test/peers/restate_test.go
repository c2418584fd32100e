//go:build restate

package peers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

var restateServer = flag.String("restate", "", "the program restate-server")

var restateColumn = []column{{name: "Restate", start: restateIngress, note: "the ingress of [Restate](https://restate.dev) 1.7.12, one node, with its Go SDK 1.2.0. The sale is made in `restate.Run`. A handler that dies is run again by Restate itself, so that a client sees no failure, and the checks of crashes cannot be carried out. A failure is a terminal error, which Restate keeps by design. Restate has no authentication of its own. Killed and started again on its data"}}

// restateIngress is a service of Restate's, called through its ingress.
func restateIngress(t *testing.T, s *shop) *conform.Options {
	var mu sync.Mutex
	died := map[string]bool{}
	sell := func(ctx restate.Context, order json.RawMessage) (json.RawMessage, error) {
		in := ctx.Request()
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/Sales/Sell", nil)
		test := in.Headers.Get("x-test")
		r.Header.Set("X-Test", test)
		a, err := restate.Run(ctx, func(restate.RunContext) (sold, error) {
			a, crashed := s.survives(r, order)
			mu.Lock()
			defer mu.Unlock()
			if crashed && !died[in.ID] {
				died[in.ID] = true
				return sold{}, fmt.Errorf("the process died")
			}
			if crashed { // once is enough
				a = answer{status: http.StatusCreated, body: []byte(`{"id":"sale_after_a_crash"}`)}
			}
			return sold{a.status, a.body}, nil
		})
		if err != nil {
			return nil, err
		}
		if a.Status >= 400 {
			return nil, restate.ToTerminalError(fmt.Errorf("%s", a.Body), restate.WithErrorCode(restate.Code(a.Status)))
		}
		return a.Body, nil
	}
	quiet := slog.NewTextHandler(io.Discard, nil)
	handler, err := server.NewRestate().WithLogger(quiet, true).
		Bind(restate.NewService("Sales").Handler("Sell", restate.NewServiceHandler(sell)).Handler("Transfer", restate.NewServiceHandler(sell))).Handler()
	must(t, err)
	service := httptest.NewUnstartedServer(handler)
	service.Config.Protocols = new(http.Protocols)
	service.Config.Protocols.SetHTTP1(true)
	service.Config.Protocols.SetUnencryptedHTTP2(true)
	service.Start()
	t.Cleanup(service.Close)

	ingress, admin, node, dir := porthold.Lent(t), porthold.Lent(t), porthold.Lent(t), t.TempDir()
	var cmd *exec.Cmd
	var log bytes.Buffer
	start := func() {
		cmd = exec.CommandContext(context.WithoutCancel(t.Context()), *restateServer, "--no-logo", "--base-dir", dir, "--node-name", "matrix", "--listen-mode", "tcp")
		cmd.Env = append(os.Environ(),
			"RESTATE_INGRESS__BIND_ADDRESS="+ingress, "RESTATE_ADMIN__BIND_ADDRESS="+admin, "RESTATE_BIND_ADDRESS="+node,
			"RESTATE_ADVERTISED_ADDRESS=http://"+node, "RESTATE_LOG_FILTER=warn", "RESTATE_DISABLE_TELEMETRY=true",
		)
		cmd.Stdout, cmd.Stderr = &log, &log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		must(t, cmd.Start())
		await(t, admin)
		await(t, ingress)
	}
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	start()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	register(t, admin, service.URL)

	o := s.verified("http://" + ingress)
	o.Effects.URL = s.ledger.URL + "/all" // a handler does not learn the key
	o.Profile = keepsFailures()
	o.Request.Path, o.OtherPath = "/Sales/Sell", "/Sales/Transfer"
	o.Restart = func(context.Context) error { stop(); start(); return nil }
	return o
}

// sold is what restate.Run stores of an answer.
type sold struct {
	Status int
	Body   json.RawMessage
}

// register tells Restate where the service is.
func register(t *testing.T, admin, at string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		res, err := http.Post("http://"+admin+"/deployments", "application/json", strings.NewReader(fmt.Sprintf(`{"uri": %q}`, at)))
		if err == nil {
			said, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode < 300 {
				return
			}
			err = fmt.Errorf("register: %s %s", res.Status, said)
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
