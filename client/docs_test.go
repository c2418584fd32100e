package client_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// The Go code of docs/client.md, as it stands there. It is compiled, and not run: the API is
// an example.
var (
	_ = func() error {
		c, err := client.New(nil)
		if err != nil {
			return err
		}
		api := &http.Client{Transport: c}
		answer, err := api.Post("https://api.example.com/payments", "application/json", strings.NewReader(`{"amount":1200}`))
		_ = answer
		return err
	}
	_ = func(c *client.Client, request *http.Request) error {
		answer, err := c.Do("order-17", request)
		_ = answer
		return err
	}
	_ = func(ctx context.Context, addToken func(*http.Request) error) error {
		j, err := journal.Open("payments.journal", nil)
		if err != nil {
			return err
		}
		defer j.Close()
		c, err := client.New(&client.Options{Journal: j, Authorize: addToken})
		if err != nil {
			return err
		}
		err = c.Resume(ctx, func(op client.Operation, answer *http.Response, err error) {
			log.Println(op.ID, answer, err)
		})
		return err
	}
	_ = func(ctx context.Context, db *sql.DB) error {
		j, err := journal.NewSQL(db, &journal.SQLOptions{Dollar: true}) // $1, as PostgreSQL has it
		if err != nil {
			return err
		}
		err = j.CreateTable(ctx)
		return err
	}
)

// unindented returns text without the white space before its lines.
func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, "\t "))
	}
	return b.String()
}

func TestDocsCodeCompiles(t *testing.T) {
	t.Parallel()
	source := unindented(pages.Read(t, "client/docs_test.go"))
	blocks := pages.Blocks(pages.Read(t, "docs/client.md"), "go")
	if len(blocks) != 4 {
		t.Errorf("docs/client.md has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(source, unindented(block)) {
			t.Errorf("this code of docs/client.md is not compiled here:\n%s", block)
		}
	}
}
