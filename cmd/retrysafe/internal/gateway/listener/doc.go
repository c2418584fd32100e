// Package front is where clients of the gateway come in: listeners, TLS, HTTP/1.1 and
// HTTP/2, and which configuration serves whom.
//
//	server, err := front.New(front.Options{Load: load, Build: build, Reload: reload})
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
// A door is one address. It leads to a room, which has the terms that connections are
// served on; a door gets another room when the terms change, and a connection stays in
// the room it came to.
package listener
