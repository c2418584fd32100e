package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/operator"
)

// consoleServer is the operator console over the store of the demo.
type consoleServer struct {
	url, token string
	http       *serving
	handler    *console.Handler
	service    *operator.Service
	db         *database
}

// startConsole starts a console, for one person with a new token.
func startConsole(ctx context.Context, o *Options, store, api string, t *traffic) (c *consoleServer, err error) {
	db, err := openDatabase(ctx, store)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("console: %w", err), db.close())
		}
	}()
	c = &consoleServer{db: db, token: rand.Text()}
	if c.service, err = operator.New(db.keys, &operator.Options{StoreTimeout: storeMay}); err != nil {
		return nil, err
	}
	facts := console.Facts{API: api, LastHour: t.lastHour, Today: t.today}
	facts.LookedInto = func(operation string) bool { return operation == "POST /charges" } // see node.duties
	facts.Checks = func(ctx context.Context) []console.Check {
		store := console.Check{Name: "store", Level: "ok", Text: "answers"}
		if err := db.PingContext(ctx); err != nil {
			store.Level, store.Text = "bad", "does not answer"
		}
		return []console.Check{store, {Name: "provider", Level: "warn", Text: "fails for some accounts of the traffic, on purpose"}}
	}
	c.handler, err = console.New(console.Options{
		Service: c.service, Outbox: db.messages, Logger: o.Logger, Overview: console.Overview{Facts: facts},
		Tokens: []console.Token{{Name: "you", Role: "act", Secret: c.token}},
	})
	if err != nil {
		return nil, err
	}
	if c.http, err = serve(ctx, o.Console, c.handler); err != nil {
		return nil, err
	}
	c.url = c.http.url
	return c, nil
}

// stop ends the console. A batch that runs is stopped, and goes on when it is repeated.
func (c *consoleServer) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return errors.Join(c.http.stop(), c.handler.Close(ctx), c.service.Drain(ctx), c.db.close())
}

// ConsoleAddress returns the address of the console if none is given: eleven ports above
// the first node, behind the provider.
func ConsoleAddress(listen string) string {
	addr, _ := above(cmp.Or(listen, defaultListen), maxNodes+1) // Check reports an invalid address
	return addr
}

// hour is how many minutes the console shows.
const hour = 60 * time.Minute
