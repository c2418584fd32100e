package config_test

import (
	"fmt"
	"os"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

func ExampleParse() {
	_, err := config.Parse("gw.yaml", []byte(`
upstream: http://127.0.0.1:9000
tenant: { from: bearer }
defaults: { lease: 30, on_5xx: retyr }
`), os.LookupEnv)
	fmt.Println(err)
	// Output:
	// gw.yaml:4:20: defaults.lease: "30" has no unit; write a duration such as 30s, 15m, 24h or 7d
	// gw.yaml:4:32: defaults.on_5xx: "retyr" is none of by_proof, retry, store; did you mean retry?
}

// Flags override the file, or do without one.
func ExampleParse_flags() {
	c, err := config.Parse("", nil, os.LookupEnv,
		config.Flag{Name: "--upstream", Field: "upstream", Value: "http://127.0.0.1:9000"},
		config.Flag{Name: "--tenant", Field: "tenant", Value: "header:X-Tenant-Id"},
		config.Flag{Name: "--on-5xx", Field: "defaults.on_5xx", Value: "store"},
	)
	fmt.Println(c.Listen, c.Tenant.Name, err)
	// Output:
	// 127.0.0.1:8080 X-Tenant-Id <nil>
}

func ExampleConfig_Warnings() {
	c, err := config.Parse("gw.yaml", []byte(`
upstream: http://127.0.0.1:9000
tenant: none
defaults: { retention: 10m }
`), os.LookupEnv)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range c.Warnings() {
		fmt.Println(w)
	}
	// Output:
	// gw.yaml:3:9: tenant: all callers are one tenant: a caller that knows a key gets its answer
	// gw.yaml:4:24: defaults.retention: retention 10m0s is under an hour: a client that comes back later runs the operation again
}
