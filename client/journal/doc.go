// Package journal keeps the operations of a client beyond the life of its process: in a file
// ([Open]), or in a table of any database ([NewSQL]).
//
//	j, err := journal.Open("payments.journal", nil)
//	...
//	defer j.Close()
//	c, err := client.New(&client.Options{Journal: j, Authorize: addToken})
//	...
//	err = c.Resume(ctx, func(op client.Operation, answer *http.Response, err error) { ... })
//
// An operation is stored, durably, before its first byte is sent. A journal has the bodies of
// requests and answers in plain text, and no credentials. A file is readable by its owner only.
package journal
