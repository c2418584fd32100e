package grpckey_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/grpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/memstore"
)

type pay struct {
	payv1.UnimplementedPayServiceServer
	charges int
}

func (p *pay) Charge(context.Context, *payv1.ChargeRequest) (*payv1.ChargeResponse, error) {
	p.charges++
	return &payv1.ChargeResponse{ChargeId: fmt.Sprint("charge ", p.charges)}, nil
}

// A server whose retried calls get the answer of the first one.
func ExampleUnaryServerInterceptor() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	tenant := func(context.Context) (string, error) { return "acme", nil } // from your authentication
	guard, err := rpckey.New(engine, tenant, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpckey.UnaryServerInterceptor(guard)),
		grpc.ChainStreamInterceptor(grpckey.StreamServerInterceptor(guard)))
	payv1.RegisterPayServiceServer(server, new(pay))

	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			fmt.Println(err)
		}
	}()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	client := payv1.NewPayServiceClient(conn)
	for range 2 {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		var header metadata.MD
		res, err := client.Charge(ctx, &payv1.ChargeRequest{Amount: 1200}, grpc.Header(&header))
		fmt.Println(res.GetChargeId(), err, header.Get(rpckey.MetadataReplayed))
	}
	// Output:
	// charge 1 <nil> []
	// charge 1 <nil> [true]
}
