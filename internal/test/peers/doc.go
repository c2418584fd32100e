// Package peers is a module of its own for tests beside other software of this field: the
// client under stripe-go and with the hooks of go-retryablehttp, and the verifier on Fiber's
// middleware, Restate's ingress and published recipes, which docs/matrix.md shows. None of it
// belongs in the library's go.mod.
package peers
