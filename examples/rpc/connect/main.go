// Connect is a guarded Connect service with a method of each guarantee class.
package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/examples/rpc/payv1"
	"github.com/retrysafe/retrysafe/examples/rpc/payv1/payv1connect"
	"github.com/retrysafe/retrysafe/examples/rpc/shop"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/connectkey"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

type order = *connect.Request[payv1.Order]
type receipt = *connect.Response[payv1.Receipt]

type service struct {
	payv1connect.UnimplementedPayServiceHandler
	provider shop.Provider
}

func answer(id string, err error) (receipt, error) {
	return connect.NewResponse(&payv1.Receipt{Id: id}), err
}

// Book writes to the store's own database: exactly one effect (class A).
func (s *service) Book(ctx context.Context, o order) (receipt, error) {
	tx, err := rpckey.Tx[*sql.Tx](ctx)
	if err != nil {
		return nil, err
	}
	return answer(shop.Book(ctx, tx, o.Msg.GetAmount())) // an error rolls the booking back
}

// Charge calls a provider that honours a key: effectively one effect (class B).
func (s *service) Charge(ctx context.Context, o order) (receipt, error) {
	if o.Msg.GetAmount() <= 0 { // stored like any answer
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the amount is not positive"))
	}
	x, _ := retrysafe.FromContext(ctx)
	return answer(s.provider.Charge(ctx, x.DownstreamKey("charge"), o.Msg.GetAmount()))
}

// Mail does anything else: at most one effect, then explained (class C).
func (s *service) Mail(ctx context.Context, _ order) (receipt, error) {
	return answer(s.provider.Mail(ctx))
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
		payv1connect.PayServiceBookProcedure:   func(o *rpckey.Options) { o.Tx = rpckey.InTx(store) },
		payv1connect.PayServiceChargeProcedure: func(o *rpckey.Options) { o.Policy = &keyed },
	}})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(payv1connect.NewPayServiceHandler(&service{provider: p}, connect.WithInterceptors(connectkey.Interceptor(guard))))
	return &http.Server{Handler: mux}, nil
}

func main() { shop.Main(newServer) }
