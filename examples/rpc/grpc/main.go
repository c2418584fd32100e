// Grpc is a guarded gRPC service with a method of each guarantee class.
package main

import (
	"context"
	"database/sql"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/examples/rpc/payv1"
	"github.com/retrysafe/retrysafe/examples/rpc/shop"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/grpckey"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

type service struct {
	payv1.UnimplementedPayServiceServer
	provider shop.Provider
}

// Book writes to the store's own database: exactly one effect (class A).
func (s *service) Book(ctx context.Context, o *payv1.Order) (*payv1.Receipt, error) {
	tx, err := rpckey.Tx[*sql.Tx](ctx)
	if err != nil {
		return nil, err
	}
	id, err := shop.Book(ctx, tx, o.GetAmount())
	return &payv1.Receipt{Id: id}, err // an error rolls the booking back
}

// Charge calls a provider that honours a key: effectively one effect (class B).
func (s *service) Charge(ctx context.Context, o *payv1.Order) (*payv1.Receipt, error) {
	if o.GetAmount() <= 0 {
		return nil, status.Error(codes.InvalidArgument, "the amount is not positive") // stored like any answer
	}
	x, _ := retrysafe.FromContext(ctx)
	id, err := s.provider.Charge(ctx, x.DownstreamKey("charge"), o.GetAmount())
	return &payv1.Receipt{Id: id}, err
}

// Mail does anything else: at most one effect, then explained (class C).
func (s *service) Mail(ctx context.Context, _ *payv1.Order) (*payv1.Receipt, error) {
	id, err := s.provider.Mail(ctx)
	return &payv1.Receipt{Id: id}, err
}

// tenant returns the caller that your authentication has put into the context.
func tenant(context.Context) (string, error) { return "acme", nil }

func newServer(store *sqlitestore.Store, p shop.Provider) (shop.Server, error) {
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Lease: time.Second}})
	if err != nil {
		return nil, err
	}
	keyed := retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, Lease: time.Second}
	guard, err := rpckey.New(engine, tenant, &rpckey.Options{Procedures: map[string]func(*rpckey.Options){
		payv1.PayService_Book_FullMethodName:   func(o *rpckey.Options) { o.Tx = rpckey.InTx(store) },
		payv1.PayService_Charge_FullMethodName: func(o *rpckey.Options) { o.Policy = &keyed },
	}})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(grpckey.UnaryServerInterceptor(guard)))
	payv1.RegisterPayServiceServer(server, &service{provider: p})
	return server, nil
}

func main() { shop.Main(newServer) }
