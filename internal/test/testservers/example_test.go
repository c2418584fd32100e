package testservers_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func ExampleStartPostgres() {
	ctx := context.Background()
	pg, err := testservers.StartPostgres(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pg.Close()
	conn, err := pgx.Connect(ctx, pg.URL("postgres"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = conn.Exec(ctx, "CREATE TABLE kept AS SELECT 'this' AS what")
	fmt.Println("create:", err)
	fmt.Println("kill -9:", pg.Kill())
	fmt.Println("restart:", pg.Restart(ctx))
	conn, err = pgx.Connect(ctx, pg.URL("postgres"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	var what string
	err = conn.QueryRow(ctx, "SELECT what FROM kept").Scan(&what)
	fmt.Println("kept:", what, err)
	// Output:
	// create: <nil>
	// kill -9: <nil>
	// restart: <nil>
	// kept: this <nil>
}
