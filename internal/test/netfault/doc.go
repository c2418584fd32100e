// Package netfault is a TCP proxy that makes the network fail, for tests: a
// connection that ends after a given byte, a reset, a reply that never comes,
// slow links, refused connections.
//
// It looks at bytes only, so it serves PostgreSQL and HTTP alike. A [Plan] sees
// every chunk before it passes and says what becomes of it; plans that count
// bytes are exact to the byte, however the kernel cuts the stream into chunks.
package netfault
