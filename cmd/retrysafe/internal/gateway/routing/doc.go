// Package routing says which of a gateway's routes a request takes.
//
// A route's pattern is one of [net/http.ServeMux], and of several the most specific one
// counts. Other than a ServeMux, a [Table] never takes a request for one that it would
// redirect to: "POST /payments/{rest...}" is not about /payments.
//
// The service behind the gateway need not read a path as the gateway does. [Table.Find]
// therefore looks up each path that a common server may make of it, and returns every
// route that one of these readings takes.
package routing
