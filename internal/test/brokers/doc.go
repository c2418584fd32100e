// Package brokers is a module of its own for the tests that run a broker inside the
// test process: natssink, kafkasink, and the inbox behind them. The servers are large
// modules that no user of the library needs, so they do not belong in its go.mod.
//
// Its folders are called like the packages that they test. It may import internal
// packages of the library, since its path begins with the library's.
package brokers
