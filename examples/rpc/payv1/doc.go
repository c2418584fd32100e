// Package payv1 is the service of the examples for gRPC and Connect. All but this file
// and pay.proto is generated.
package payv1

//go:generate go -C ../../../tools run ./protogen ../examples/rpc/payv1/pay.proto
