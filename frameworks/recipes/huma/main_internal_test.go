package main

import (
	"net/http/httptest"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

func TestProgram(t *testing.T) {
	t.Parallel()
	adaptertest.Program(t, "POST /accounts/{id}/charges", func(t *testing.T, e *retrysafe.Engine) string {
		t.Helper()
		app, err := routes(e)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(app)
		t.Cleanup(server.Close)
		return server.URL
	})
}
