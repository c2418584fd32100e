package identity_test

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/identity"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func ExampleJoin() {
	ctx, store := context.Background(), memstore.New(nil)
	for _, text := range []string{"tenant: bearer", "tenant: bearer\nprofile: ietf", "tenant: header:X-Org"} {
		c, err := config.Parse("gw.yaml", []byte("upstream: http://127.0.0.1:9000\n"+text), nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _, err = identity.Join(ctx, store, identity.Claim{Settings: identity.Of(c, nil)})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// identity: the keys of the store were stored under other settings: tenant is bearer in the store, and header:X-Org in the configuration
}
