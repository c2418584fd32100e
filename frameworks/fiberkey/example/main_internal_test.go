package main

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

func TestProgram(t *testing.T) {
	t.Parallel()
	adaptertest.Program(t, "POST /accounts/:id/charges", func(t *testing.T, e *retrysafe.Engine) string {
		t.Helper()
		app, err := routes(e)
		if err != nil {
			t.Fatal(err)
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
		t.Cleanup(func() {
			_ = app.Shutdown()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return "http://" + l.Addr().String()
	})
}
