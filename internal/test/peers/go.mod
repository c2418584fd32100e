module github.com/retrysafe/retrysafe/internal/test/peers

go 1.26.0

replace github.com/retrysafe/retrysafe => ../../..

require (
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/retrysafe/retrysafe v0.0.0-00010101000000-000000000000
	github.com/stripe/stripe-go/v83 v83.2.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.11.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	golang.org/x/net v0.50.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
