package connectkey_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/connectkey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1/payv1connect"
	"github.com/retrysafe/retrysafe/store/memstore"
)

type pay struct {
	payv1connect.UnimplementedPayServiceHandler
	charges int
}

func (p *pay) Charge(context.Context, *connect.Request[payv1.ChargeRequest]) (*connect.Response[payv1.ChargeResponse], error) {
	p.charges++
	return connect.NewResponse(&payv1.ChargeResponse{ChargeId: fmt.Sprint("charge ", p.charges)}), nil
}

// A handler whose retried calls get the answer of the first one.
func ExampleInterceptor() {
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
	mux := http.NewServeMux()
	mux.Handle(payv1connect.NewPayServiceHandler(new(pay), connect.WithInterceptors(connectkey.Interceptor(guard))))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := payv1connect.NewPayServiceClient(server.Client(), server.URL)
	for range 2 {
		request := connect.NewRequest(&payv1.ChargeRequest{Amount: 1200})
		request.Header().Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		response, err := client.Charge(context.Background(), request)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s, replayed %q\n", response.Msg.GetChargeId(), response.Header().Get(rpckey.MetadataReplayed))
	}
	// Output:
	// charge 1, replayed ""
	// charge 1, replayed "true"
}
