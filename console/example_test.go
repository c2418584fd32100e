package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The console beside other handlers of a program's internal listener.
func ExampleNew() {
	store := memstore.New(nil) // in a program, the store that its engines use
	service, err := operator.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := console.New(console.Options{
		Service: service,
		Tokens:  []console.Token{{Name: "anna", Role: "act", Secret: "from-a-secret-store"}},
		Prefix:  "/retrysafe",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close(context.Background()) }()
	mux := http.NewServeMux()
	mux.Handle("/retrysafe/", c)
	internal := httptest.NewServer(mux)
	defer internal.Close()

	r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, internal.URL+"/retrysafe/api/v1/whoami", nil)
	r.Header.Set("Authorization", "Bearer from-a-secret-store")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	fmt.Print(string(body))
	// Output: {"name":"anna","role":"act"}
}
