// Package payv1 is the service that the tests of rpckey call. All but this file and
// pay.proto is generated.
package payv1

//go:generate go -C ../../../tools run ./protogen ../rpckey/internal/payv1/pay.proto
