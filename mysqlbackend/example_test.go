package mysqlbackend_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/mysqlbackend"
)

func ExampleNew() {
	db, err := sql.Open("mysql", "app:password@tcp(localhost:3306)/jobs"+
		"?interpolateParams=true&innodb_lock_wait_timeout=1"+
		"&timeout=3s&readTimeout=20s&writeTimeout=3s")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // the driver does not close the database

	driver, err := mysqlbackend.New(db, &mysqlbackend.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	client, err := dlock.New(driver)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	err = client.Do(ctx, "nightly-report", func(ctx context.Context, lease *dlock.Lease) error {
		log.Printf("alone until %v, fence %d", lease.Deadline(), lease.Fence())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

func Example_openFromURL() {
	// import _ "github.com/dlock-go/dlock/mysqlbackend"
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mysql://app:password@localhost/jobs?create=1")
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
	fmt.Print(mysqlbackend.Schema("locks"))
	// Output:
	// CREATE TABLE IF NOT EXISTS `locks` (
	//   name    VARBINARY(1024) NOT NULL,
	//   owner   VARBINARY(64)   NOT NULL,
	//   token   BIGINT          NOT NULL,
	//   since   DATETIME(6)     NOT NULL,
	//   expires DATETIME(6)     NOT NULL,
	//   meta    VARBINARY(1024) NOT NULL,
	//   roster  MEDIUMBLOB,
	//   PRIMARY KEY (name)
	// ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
}
