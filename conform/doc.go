// Package conform tells from the outside whether an API keeps the contract of idempotency
// keys: the first request under a key runs, every retry gets its answer, and no other
// request does.
//
// [Run] sends real requests, one check after the other, and returns a [Report]. It shares
// no code with the packages that it may be pointed at, so it judges any API in any
// language:
//
//	report, err := conform.Run(ctx, &conform.Options{
//		URL:     server.URL,
//		Request: conform.Request{Path: "/payments", Body: []byte(`{"amount": 1200}`)},
//		Effects: conform.Effects{URL: server.URL + "/ledger?key={key}"},
//	})
//	if err == nil {
//		err = report.Err()
//	}
//
// A check has an identity ("replay/bytes"), the clause that it comes from, a severity, and
// the checks that it depends on: if a retry runs again, whether its bytes are the same says
// nothing more. Each check announces its requests, [Plan] lists them, and no check can send
// another one or more of them.
//
// Checks that need more than one ordinary request are not tested until the [Options] say
// how: a second caller, a header that makes the API slow, a command that restarts it. The
// report says what was missing.
package conform
