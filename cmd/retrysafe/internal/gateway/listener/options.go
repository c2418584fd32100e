package listener

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// An App is one configuration at work.
type App interface {
	// ServeHTTP is called for each request, until another App takes over.
	http.Handler
	// Run does the background work. Its context ends with the last request that is let
	// in, because another App takes over or the process is to end; requests may still
	// be served. Then Run takes up nothing more, finishes what it has begun and returns
	// nil. An error before that ends the server.
	Run(ctx context.Context) error
	// Drain is called once, when all requests and Run have ended, or should have. It
	// records what is not recorded yet, and gives back what the App holds.
	Drain(ctx context.Context) error
	// Ready says what keeps the App from serving. It is asked often, and concurrently.
	Ready() error
}

// An Operated App has pages and an API for operators, at all paths of the admin listener
// but those for health and metrics. The handler authenticates its requests itself. It may
// be nil.
type Operated interface {
	Operators() http.Handler
}

// Options are what a [Server] is made of. Load and Build are required.
type Options struct {
	// Load reads the configuration, complete and checked, at the start and at each
	// reload.
	Load func() (*config.Config, error)
	// Build makes a configuration work. What it has opened when it fails, it closes.
	Build func(ctx context.Context, c *config.Config) (App, error)
	// Admin returns the handler of the admin listener's pages, which need the admin token.
	// It is called once after each Build. Nil, or a nil handler, is none. An [Operated] App
	// has pages of its own instead.
	Admin func(c *config.Config) http.Handler
	// Metrics is /metrics of the admin listener, which needs the admin token or the one
	// for metrics.
	Metrics http.Handler
	// Reload asks for the configuration to be read again. Nil never does.
	Reload <-chan struct{}
	// Upgrades lets requests through that ask for another protocol, such as WebSocket.
	// What is sent after the switch is not inspected. Default: they are refused.
	Upgrades bool
	// Ready is called with the addresses when connections are accepted, and again when a
	// reload has changed them.
	Ready func(Addresses)
	// Logger gets what happens to the server, not single requests; see [AccessLog] for
	// those. Default slog.Default().
	Logger *slog.Logger
}

// Addresses are base URLs, with the ports that are really listened on.
type Addresses struct {
	Main string
	// Admin is empty if there is no admin listener.
	Admin string
	// Socket is the admin listener's socket as unix:PATH, or empty.
	Socket string
}
