package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// besideRules say what other callers may do while a transaction is open.
var besideRules = []rule{{
	name:   "reserve is exclusive and does not wait",
	reason: "If an open transaction has reserved a key, every other Reserve of it returns ErrBusy at once, because a duplicate is answered 409 and must not queue for a connection.",
	needs:  needsTwoTx,
	check: func(k *kit) {
		free := k.record("free")
		used := k.create(k.record("used"))
		for _, end := range []func(retrysafe.Tx) error{
			func(tx retrysafe.Tx) error { return tx.Commit(k.ctx) },
			func(tx retrysafe.Tx) error { return tx.Rollback(k.ctx) },
		} {
			one, two := k.begin(), k.begin()
			for _, ref := range []retrysafe.Ref{free.Ref, used.Ref} {
				if _, err := one.Reserve(k.ctx, ref); err != nil && !errors.Is(err, retrysafe.ErrNotFound) {
					k.failf("Reserve of a key that no transaction holds: %v", err)
				}
				ctx, cancel := k.briefly()
				_, err := two.Reserve(ctx, ref)
				cancel()
				k.want("Reserve beside another transaction", err, retrysafe.ErrBusy)
			}
			k.want("end of the first transaction", end(one), nil)
			three := k.begin()
			_, err := three.Reserve(k.ctx, free.Ref)
			k.want("Reserve after the first transaction's end", err, retrysafe.ErrNotFound)
			_, err = three.Reserve(k.ctx, used.Ref)
			k.want("Reserve after the first transaction's end", err, nil)
			k.want("Rollback", three.Rollback(k.ctx), nil)
			k.want("Rollback", two.Rollback(k.ctx), nil)
		}
	},
}, {
	name:   "ended transaction frees no key of another",
	reason: "A Rollback after the end of a transaction changes nothing, also not for the transaction that holds its key by now, because callers defer a Rollback and the key would be run twice.",
	needs:  needsTwoTx,
	check: func(k *kit) {
		ref := k.record("k").Ref
		for _, end := range []func(retrysafe.Tx) error{
			func(tx retrysafe.Tx) error { return tx.Commit(k.ctx) },
			func(tx retrysafe.Tx) error { return tx.Rollback(k.ctx) },
		} {
			one := k.begin()
			_, err := one.Reserve(k.ctx, ref)
			k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
			k.want("end of the first transaction", end(one), nil)
			two := k.begin()
			_, err = two.Reserve(k.ctx, ref)
			k.want("Reserve after the first transaction's end", err, retrysafe.ErrNotFound)
			_ = one.Rollback(k.ctx)
			three := k.begin()
			ctx, cancel := k.briefly()
			_, err = three.Reserve(ctx, ref)
			cancel()
			k.want("Reserve beside the second transaction, after another Rollback of the first", err, retrysafe.ErrBusy)
			k.want("Rollback", three.Rollback(k.ctx), nil)
			k.want("Rollback", two.Rollback(k.ctx), nil)
		}
	},
}, {
	name:   "create of a reserved key is busy",
	reason: "A plain Create of a free key that an open transaction holds returns ErrBusy at once and stores nothing, because the transaction may be about to store the answer.",
	needs:  needsTwoTx,
	check: func(k *kit) {
		r := k.record("k")
		tx := k.begin()
		_, err := tx.Reserve(k.ctx, r.Ref)
		k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
		ctx, cancel := k.briefly()
		defer cancel()
		_, err = k.Store.Create(ctx, k.record("k"))
		k.want("Create of a reserved key", err, retrysafe.ErrBusy)
		created, err := tx.Create(k.ctx, in(retrysafe.StateCompleted, r, later))
		k.want("Create in the transaction", err, nil)
		_, err = k.Store.Create(ctx, k.record("k"))
		k.want("Create of a key that an open transaction created", err, retrysafe.ErrBusy)
		k.absent(r.Ref)
		k.want("Commit", tx.Commit(k.ctx), nil)
		got, err := k.Store.Create(k.ctx, k.record("k"))
		k.want("Create after the commit", err, retrysafe.ErrExists)
		k.same("the answer", got, created)
	},
}, {
	name:   "busy create poisons the transaction",
	reason: "After a Create of a key that another transaction holds the transaction cannot commit, even if its caller ignores the error, because the other one is about to make the same business write.",
	needs:  needsWriters,
	check: func(k *kit) {
		r := k.record("k")
		one := k.begin()
		_, err := one.Reserve(k.ctx, r.Ref)
		k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
		k.poisoned("Create of a key that another transaction holds", func(tx retrysafe.Tx) {
			ctx, cancel := k.briefly()
			defer cancel()
			if _, err := tx.Create(ctx, in(retrysafe.StateCompleted, k.record("k"), later)); err == nil {
				k.failf("Create of a key that another transaction holds succeeded")
			}
		})
		created, err := one.Create(k.ctx, in(retrysafe.StateCompleted, r, later))
		k.want("Create in the first transaction", err, nil)
		k.want("Commit of the first transaction", one.Commit(k.ctx), nil)
		k.unchanged("a transaction that could not commit", created)
	},
}, {
	name:   "open transaction delays no other key",
	reason: "While a transaction holds a key every other key is created, swapped, listed and purged as ever, because one slow handler must not stop the rest.",
	needs:  needsWriters,
	check: func(k *kit) {
		held := k.create(k.record("held"))
		tx := k.begin()
		_, err := tx.Swap(k.ctx, to(retrysafe.StateCompleted, held, later))
		k.want("Swap in the transaction", err, nil)
		_, err = tx.Reserve(k.ctx, retrysafe.Ref{Scope: "acct_1", Key: "reserved"})
		k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
		_, err = tx.Create(k.ctx, k.record("inserted"))
		k.want("Create in the transaction", err, nil)

		ctx, cancel := k.briefly()
		defer cancel()
		replies := race(crowd, func(i int) (retrysafe.Record, error) {
			rec, err := k.node(i).Create(ctx, k.record(fmt.Sprintf("k%d", i)))
			if err != nil {
				return rec, err
			}
			return k.node(i).Swap(ctx, to(retrysafe.StateCompleted, rec, soon))
		})
		for _, r := range replies {
			k.want("Create and Swap of another key", r.err, nil)
		}
		k.until(held.Ref, replies[0].rec.Deadline)
		if _, err := k.Store.Purge(ctx, crowd); err != nil {
			k.failf("Purge beside an open transaction: %v", err)
		}
		if _, err := k.Store.List(ctx, retrysafe.Query{}); err != nil {
			k.failf("List beside an open transaction: %v", err)
		}
		if _, err := k.Store.Load(ctx, held.Ref); err != nil {
			k.failf("Load of the held key: %v", err)
		}
		k.want("Commit", tx.Commit(k.ctx), nil)
	},
}, {
	name:   "purge comes back to what a transaction held",
	reason: "A due record that an open transaction held during a purge is deleted by a later one, because otherwise it takes room for ever.",
	needs:  needsWriters,
	check: func(k *kit) {
		held := k.swap(to(retrysafe.StateCompleted, k.create(k.record("held")), soon))
		k.untilDue(held)
		tx := k.begin()
		_, err := tx.Swap(k.ctx, to(retrysafe.StateUnknown, held, later))
		k.want("Swap of a due record", err, nil)
		ctx, cancel := k.briefly()
		defer cancel()
		if n, err := k.Store.Purge(ctx, 10); n != 0 || err != nil {
			k.failf("Purge beside a transaction that holds the record deleted %d, %v", n, err)
		}
		k.want("Rollback", tx.Rollback(k.ctx), nil)
		if n, err := k.Store.Purge(k.ctx, 10); n != 1 || err != nil {
			k.failf("Purge after the transaction deleted %d, %v", n, err)
		}
	},
}, {
	name:   "swap does not overtake a transaction",
	reason: "A plain Swap of a record that an open transaction has swapped loses if the transaction commits and can win if it does not, because otherwise both have settled the attempt.",
	needs:  needsTx,
	check: func(k *kit) {
		for _, commit := range []bool{true, false} {
			rec := k.create(k.record(fmt.Sprintf("commit %t", commit)))
			tx := k.begin()
			swapped, err := tx.Swap(k.ctx, to(retrysafe.StateCompleted, rec, later))
			k.want("Swap in the transaction", err, nil)

			plain := make(chan reply, 1)
			go func() {
				got, err := k.Store.Swap(k.ctx, to(retrysafe.StateUnknown, rec, later))
				plain <- reply{got, err}
			}()
			// Most often the plain Swap is waiting now; the rule holds either way.
			k.until(rec.Ref, k.load(rec.Ref).ReadAt.Add(5*tick))
			k.unchanged("a Swap beside an open transaction", rec)
			if commit {
				k.want("Commit", tx.Commit(k.ctx), nil)
				if r := k.await("Swap", plain); r.err == nil {
					k.failf("a plain Swap won against a transaction that committed")
				}
				k.same("after commit", k.load(rec.Ref), swapped)
				continue
			}
			k.want("Rollback", tx.Rollback(k.ctx), nil)
			switch r := k.await("Swap", plain); {
			case r.err == nil:
				k.same("after rollback", k.load(rec.Ref), r.rec)
			case errors.Is(r.err, retrysafe.ErrConflict), errors.Is(r.err, retrysafe.ErrNotFound):
				k.failf("a plain Swap lost against a transaction that was rolled back: %v", r.err)
			default: // it stopped waiting, so it is sent again
				k.swap(to(retrysafe.StateUnknown, rec, later))
			}
		}
	},
}, {
	name:   "one of two transactions commits",
	reason: "Of two transactions that swap one record at one revision at most one commits, because each carries a business write.",
	needs:  needsTwoTx,
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		one := k.begin()
		two, err := k.Begin(k.ctx)
		k.want("Begin", err, nil)
		swapped, err := one.Swap(k.ctx, to(retrysafe.StateCompleted, rec, later))
		k.want("Swap in the first transaction", err, nil)
		second := make(chan reply, 1)
		go func() {
			defer func() { _ = two.Rollback(k.ctx) }() // not safe to end from outside
			got, err := two.Swap(k.ctx, to(retrysafe.StateUnknown, rec, later))
			if err != nil {
				err = two.Commit(k.ctx)
			}
			second <- reply{got, err}
		}()
		k.until(rec.Ref, k.load(rec.Ref).ReadAt.Add(5*tick))
		k.want("Commit of the first transaction", one.Commit(k.ctx), nil)
		if r := k.await("the second transaction", second); r.err == nil {
			k.failf("the second transaction's Swap or Commit succeeded as well")
		}
		k.same("after both", k.load(rec.Ref), swapped)
	},
}}

// await returns the reply of a concurrent step once the transaction that it waits for
// has ended.
func (k *kit) await(step string, replies <-chan reply) reply {
	k.t.Helper()
	select {
	case r := <-replies:
		return r
	case <-k.ctx.Done():
		k.failf("%s still waits after the transaction it waits for has ended", step)
		return reply{}
	}
}

// briefly returns a context for a step that must not wait for an open transaction.
func (k *kit) briefly() (context.Context, context.CancelFunc) {
	deadline, _ := k.ctx.Deadline()
	return context.WithTimeout(k.ctx, time.Until(deadline)/2)
}

func needsWriters(h Harness) string {
	if h.Begin != nil && h.OneWriter {
		return "an open transaction delays the writes of every other key"
	}
	return needsTx(h)
}

func needsTwoTx(h Harness) string {
	if h.Begin != nil && h.BeginWaits {
		return "a transaction waits for another one when it begins"
	}
	return needsTx(h)
}
