// Package http1 sends requests to one HTTP/1.1 server and reads their answers, on the
// goroutine of the caller.
//
// [http.Transport] has two goroutines for each connection, and each request is handed to
// one of them and its answer handed back by the other. A gateway does nothing else, so
// that costs it as much as the rest of the hop. Here a request is written, and its answer
// is read, where it is needed; connections that wait for the next request are a list.
//
// # What is known of a request
//
// [Client.Do] sends a request at most once. If no byte of it has left the process, the
// error is [neverresend.ErrNotSent], and its receiver cannot have seen it. If a part of it
// has, nothing is known.
//
// # Connections
//
// A kept connection is checked before it is used again, without waiting: one that was
// closed, or on which bytes have come that answer no request, is not used. If it fails
// before the first byte of an answer comes, the error is [ErrStale] too, and a caller whose
// request may be repeated by its nature sends it on a new one.
//
// # Answers
//
// Heads of the usual form, with a Content-Length, are parsed here. All others, and all
// other framings, are read by [http.ReadResponse], so they mean what they mean to net/http;
// a fuzz test compares both readings.
package http1
