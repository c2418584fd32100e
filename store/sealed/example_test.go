package sealed_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// A sealing store stands before any other. What is stored below tells nothing,
// and a retry gets its answer all the same.
func ExampleNew() {
	ctx := context.Background()
	// In production: 32 random bytes each, from a secret manager.
	index := bytes.Repeat([]byte("i"), sealed.KeySize)
	keys, err := sealed.NewKeyring(index, 1, map[uint32][]byte{1: bytes.Repeat([]byte("1"), sealed.KeySize)})
	if err != nil {
		log.Fatal(err)
	}
	below := memstore.New(nil)
	if err = sealed.Check(ctx, below, keys); err != nil { // before traffic: are these the store's secrets?
		log.Fatal(err)
	}
	store, err := sealed.New(below, keys)
	if err != nil {
		log.Fatal(err)
	}
	engine, err := retrysafe.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	call := retrysafe.Call{
		Ref:         retrysafe.Ref{Scope: "acme", Key: "order-4711"},
		Fingerprint: retrysafe.Fingerprint{Alg: 1},
	}
	for range 2 {
		out, err := engine.Do(ctx, call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201, Body: []byte("paid by card 4242")}, nil
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}

	stored, err := below.List(ctx, retrysafe.Query{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range stored {
		fmt.Println(len(r.Scope), len(r.Key), r.State, r.Result.Status, bytes.Contains(r.Result.Body, []byte("card 4242")))
	}
	// Output:
	// 201 paid by card 4242 replayed: false <nil>
	// 201 paid by card 4242 replayed: true <nil>
	// 43 43 completed 201 false
}

// A key is rotated by adding the next one, making it current, and removing the
// old one when nothing that it sealed is left. Until then it reads; afterwards
// what is left is refused, and never run again.
func ExampleNewKeyring_rotation() {
	ctx := context.Background()
	index := bytes.Repeat([]byte("i"), sealed.KeySize)
	one, two := bytes.Repeat([]byte("1"), sealed.KeySize), bytes.Repeat([]byte("2"), sealed.KeySize)
	below := memstore.New(nil)
	under := func(current uint32, keys map[uint32][]byte) retrysafe.Store {
		ring, err := sealed.NewKeyring(index, current, keys)
		if err != nil {
			log.Fatal(err)
		}
		s, err := sealed.New(below, ring)
		if err != nil {
			log.Fatal(err)
		}
		return s
	}

	ref := retrysafe.Ref{Scope: "acme", Key: "order-4711"}
	record := retrysafe.Record{Ref: ref, State: retrysafe.StateRetryable, Version: retrysafe.RecordVersion, Reason: "no funds"}
	if _, err := under(1, map[uint32][]byte{1: one}).Create(ctx, retrysafe.Write{Record: record, Term: time.Hour}); err != nil {
		log.Fatal(err)
	}
	r, err := under(2, map[uint32][]byte{1: one, 2: two}).Load(ctx, ref)
	fmt.Println(r.Reason, err)
	_, err = under(2, map[uint32][]byte{2: two}).Load(ctx, ref)
	fmt.Println(err)
	// Output:
	// no funds <nil>
	// sealed: key text is sealed with key 1, which is not in the keyring: retrysafe: record cannot be read
}
