// Package listener accepts the gateway's connections: it has the listeners, TLS,
// HTTP/1.1 and HTTP/2, reloads the configuration and shuts down gracefully.
//
//	server, err := listener.New(listener.Options{Load: load, Build: build, Reload: reload})
//	err = server.Run(ctx) // serves until ctx ends, then drains
//
// It knows no keys. What it promises is about requests and connections:
//
//   - A configuration is taken as a whole or not at all. Each request is served by one
//     [App] from its beginning to its end, whatever is reloaded meanwhile.
//   - A request reaches an App whole or not at all: HTTP/1 framing that two parsers
//     could read differently is refused before net/http parses it.
//   - A request that an App was given is answered, also when the process is to end,
//     for as long as the configuration's drain time allows. One that comes too late is
//     not given to an App, and its connection is closed.
//   - Everything that a client may take up is bounded: connections, heads, the time to
//     send a head and a body, the time to take an answer.
//
// A listener has one address and hands each connection that it accepts to a connServer,
// which has the limits that connections are served with. When the limits change the
// listener gets another connServer; a connection stays with the one that it was handed
// to.
package listener
