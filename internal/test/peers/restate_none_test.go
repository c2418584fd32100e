//go:build !restate

package peers_test

// restateColumn is empty: the SDK takes long to compile, and the server is 200 MB.
var restateColumn []column
