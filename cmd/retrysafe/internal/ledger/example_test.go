package ledger_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

// Our database against the provider's settlement file, for the first of March. The lists reach beyond the day, so that
// a payment of the last minute meets its counterpart.
func Example() {
	ours := ledger.CSV(strings.NewReader(`key,amount,currency,created_at
order-1,12.00,EUR,2026-03-01T09:00:00Z
order-2,30.00,EUR,2026-03-01T09:05:00Z
order-3,8.50,EUR,2026-03-01T11:00:00Z
order-5,5.00,EUR,2026-03-02T00:30:00Z
`), ledger.Columns{ID: "key", Time: "created_at", Fields: map[string]string{"amount": "amount", "currency": "currency"}})

	theirs := ledger.JSONL(strings.NewReader(`{"reference":"order-2","value":30.00,"cur":"EUR","booked":1772355905}
{"reference":"order-1","value":12.0,"cur":"EUR","booked":1772355601}
{"reference":"order-2","value":30.00,"cur":"EUR","booked":1772355907}
{"reference":"order-3","value":8.05,"cur":"EUR","booked":1772362801}
{"reference":"order-4","value":99.00,"cur":"EUR","booked":1772366400}
`), ledger.Columns{ID: "reference", Time: "booked", TimeLayout: ledger.Unix, Fields: map[string]string{"amount": "value", "currency": "cur"}})

	ctx := context.Background()
	sum, err := ledger.Compare(ctx, ours, theirs, ledger.TextReport(os.Stdout), &ledger.Options{
		Amounts: []string{"amount"},
		Since:   time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		Until:   time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC),
	})
	fmt.Println(sum.Clean(), err)
	// Output:
	// KIND              ID       OURS                                                  THEIRS
	// duplicate_theirs  order-2  -                                                     line 3 2026-03-01T09:05:07Z amount=30.00 currency=EUR
	// different         order-3  line 4 amount=8.50                                    line 4 amount=8.05
	// only_theirs       order-4  -                                                     line 5 2026-03-01T12:00:00Z amount=99.00 currency=EUR
	// pending_ours      order-5  line 5 2026-03-02T00:30:00Z amount=5.00 currency=EUR  -
	// rows: 4 ours, 5 theirs; 2 the same, 1 only theirs, 1 different, 1 duplicate theirs, 1 pending ours
	// false <nil>
}

// A sourceOf can be anything that yields rows.
func ExampleEach() {
	ours := ledger.Of(ledger.Entry{ID: "order-1"}, ledger.Entry{ID: "order-2"})
	theirs := func(yield func(ledger.Entry, error) bool) { // pages of an API, perhaps
		for _, reference := range []string{"order-1", "order-3"} {
			if !yield(ledger.Entry{ID: reference}, nil) {
				return
			}
		}
	}
	_, err := ledger.Compare(context.Background(), ours, theirs, ledger.Each(func(d ledger.Difference) error {
		fmt.Println(d.Kind, d.ID)
		return nil
	}), nil)
	fmt.Println(err)
	// Output:
	// only_ours order-2
	// only_theirs order-3
	// <nil>
}
