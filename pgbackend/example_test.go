package pgbackend_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/pgbackend"
)

func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app:password@localhost/jobs?connect_timeout=3")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close() // the driver does not close the pool

	driver, err := pgbackend.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := dlock.New(driver)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Do(ctx, "nightly-report", func(ctx context.Context, lease *dlock.Lease) error {
		log.Printf("alone until %v, fence %d", lease.Deadline(), lease.Fence())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleNewDB() {
	// import _ "github.com/jackc/pgx/v5/stdlib"
	db, err := sql.Open("pgx", "postgres://app:password@localhost/jobs?connect_timeout=3")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // the driver does not close the database

	driver, err := pgbackend.NewDB(db, &pgbackend.Options{Table: "locks"})
	if err != nil {
		log.Fatal(err)
	}
	client, err := dlock.New(driver)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func Example_openFromURL() {
	// import _ "github.com/dlock-go/dlock/pgbackend"
	ctx := context.Background()
	client, err := dlock.Open(ctx, "postgres://app:password@localhost/jobs")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lease, err := client.Lock(ctx, "nightly-report")
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := lease.Unlock(ctx); err != nil {
			log.Print(err)
		}
	}()
}

func ExampleSchema() {
	fmt.Print(pgbackend.Schema("locks"))
	// Output:
	// CREATE TABLE IF NOT EXISTS "locks" (
	// 	name    bytea PRIMARY KEY,
	// 	version bigint NOT NULL,
	// 	fence   bigint NOT NULL,
	// 	owner   text NOT NULL,
	// 	meta    bytea NOT NULL,
	// 	since   timestamptz NOT NULL,
	// 	expires timestamptz NOT NULL,
	// 	roster  bytea
	// ) WITH (fillfactor = 50)
}
