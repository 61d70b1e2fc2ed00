package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// Readers hold the lease together; a writer holds it alone.
func ExampleAcquire() {
	ctx := context.Background()
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "eu-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	reader, err := lease.Acquire(ctx, db, "my/project", "nightly build", lease.Shared)
	if err != nil {
		log.Fatal(err)
	}
	_, err = lease.TryAcquire(ctx, db, "my/project", "nightly build", lease.Exclusive)
	fmt.Println("a writer has to wait:", errors.Is(err, refdb.ErrLocked))
	if err := reader.Release(ctx); err != nil {
		log.Fatal(err)
	}

	writer, err := lease.Acquire(ctx, db, "my/project", "nightly build", lease.Exclusive)
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Release(ctx)
	// Any ref of the project moves, but only while the lease stands.
	err = writer.Update(writer.Context(), []refdb.Update{{Ref: "refs/heads/nightly", New: "1111111111111111111111111111111111111111"}})
	fmt.Println("moved:", err == nil)
	// Output:
	// a writer has to wait: true
	// moved: true
}
