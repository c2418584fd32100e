package keys

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// A session is what the commands work on: a store, or the admin API of a gateway.
type session struct {
	place
	records
	actions
	surroundings
}

// A place is where the records are.
type place interface {
	fmt.Stringer
	// Again returns the flags with which another command finds the same place.
	Again() string
	// Person returns the author of all actions and its role, or nothing if the command line
	// names the author.
	Person() adminwire.Person
	// StoreError returns an error of the place as one of the command.
	StoreError(err error) error
	Close(ctx context.Context)
}

// records is what is stored of keys.
type records interface {
	List(ctx context.Context, f operator.Filter) (adminwire.ViewPage, error)
	// Show returns a record, with or without its contents. If it cannot be read, the error
	// is [retrysafe.ErrUnreadable], and it returns the readable part.
	Show(ctx context.Context, ref retrysafe.Ref) (adminwire.View, error)
	// Contents returns a record with its contents. Why is for the audit of a gateway.
	Contents(ctx context.Context, ref retrysafe.Ref, why string) (adminwire.View, error)
	Groups(ctx context.Context, f operator.Filter) ([]operator.Group, error)
	Audit(ctx context.Context, f operator.AuditFilter) ([]operator.Entry, error)
}

// actions change what is stored, as package operator does.
type actions interface {
	Act(ctx context.Context, verb string, a operator.Action, answer *retrysafe.Result) (operator.Entry, error)
	Select(ctx context.Context, b operator.Batch) (*adminwire.Counted, error)
	Apply(ctx context.Context, b operator.Batch, of *adminwire.Counted) (operator.Entry, error)
	Survey(ctx context.Context, s operator.Suspects) (operator.Report, error)
	Quarantine(ctx context.Context, s operator.Suspects) (operator.Entry, error)
}

// surroundings is what belongs to the records.
type surroundings interface {
	Facts(ctx context.Context) (adminwire.Status, error)
	// Receipts returns receipts of delivered messages. If there are none to be kept, the
	// error is [errors.ErrUnsupported].
	Receipts(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error)
}

// open opens the store that the flags name, or connects to the gateway.
func open(ctx context.Context, env *command.Env, target *stores.Flags) (*session, error) {
	if target.AdminURL != "" {
		a, err := target.OpenAdmin(ctx, env)
		if err != nil {
			return nil, err
		}
		return &session{a, a, a, a}, nil
	}
	s, err := target.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	return &session{s, s, s, s}, nil
}
