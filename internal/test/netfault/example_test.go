package netfault_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/retrysafe/retrysafe/internal/test/netfault"
)

func ExampleProxy_Plan() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "charged 10 EUR")
	}))
	defer server.Close()
	proxy, err := netfault.New(server.Listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proxy.Close()

	proxy.Plan(netfault.After(netfault.ToClient, "charged", netfault.Cut))
	answer, err := http.Get("http://" + proxy.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	fmt.Printf("%s: %v\n", body, err)
	// Output:
	// charged: unexpected EOF
}
