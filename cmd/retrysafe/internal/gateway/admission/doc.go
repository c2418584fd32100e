// Package admission divides what a gateway has among those that use it: memory for the
// bodies and answers that are held, and requests that are under way.
//
// A consumer is a tenant or a client's address. There is one rule, the same for each
// resource: a consumer may hold as much as is still free. One consumer alone gets half,
// two get a third each, and a share is always left for the next one. The consumer that
// holds most is the first that is refused, and a consumer that holds little is refused
// last. Nothing that was granted is taken back, so that no request is dropped that
// already runs.
package admission
