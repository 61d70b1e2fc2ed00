package drivers_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// A program that works on whichever database its user names.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "refdb")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	url := "sqlite:" + filepath.Join(dir, "refs.sqlite") // or postgres://…, or spanner://…

	if err := schema.Up(ctx, url); err != nil {
		log.Fatal(err)
	}
	driver, err := drivers.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	db, err := refdb.New(driver, refdb.Options{Site: "eu-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Update(ctx, "my/project", []refdb.Update{{Ref: "refs/multi-site/version", New: "1"}})
	if err != nil {
		log.Fatal(err)
	}
	value, err := db.Get(ctx, "my/project", "refs/multi-site/version")
	fmt.Println(value, err)
	// Output: 1 <nil>
}
