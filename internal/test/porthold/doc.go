// Package porthold keeps TCP ports of 127.0.0.1 for tests, from before a server
// first listens on one until after it has listened for the last time.
//
// A port that is found by listening and closing may be gone when the server comes to
// take it, and an address whose listener has been closed may accept connections
// again, from another program. A [Port] is bound from the beginning to the end: while
// nothing listens on it, connections to it are refused and no other program can bind
// it.
//
// The package does so on Linux. Elsewhere a port is only likely to stay free, because
// it is below those that the kernel gives out by itself.
package porthold
