package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// Two sites on one database, as a unit test has them.
func Example() {
	ctx := context.Background()
	db := memory.New()
	eu, err := refdb.New(db.Open(), refdb.Options{Site: "eu-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer eu.Close()
	us, err := refdb.New(db.Open(), refdb.Options{Site: "us-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer us.Close()

	lock, err := eu.Lock(ctx, "my/project", "refs/heads/main")
	if err != nil {
		log.Fatal(err)
	}
	move := []refdb.Update{{Ref: "refs/heads/main", New: "1111111111111111111111111111111111111111"}}
	err = us.Update(ctx, "my/project", move)
	fmt.Println("us-1 is refused:", errors.Is(err, refdb.ErrLocked))
	err = lock.UpdateAndRelease(ctx, move)
	fmt.Println("eu-1 writes:", err)
	value, err := us.Get(ctx, "my/project", "refs/heads/main")
	fmt.Println("us-1 reads:", value, err)
	// Output:
	// us-1 is refused: true
	// eu-1 writes: <nil>
	// us-1 reads: 1111111111111111111111111111111111111111 <nil>
}
