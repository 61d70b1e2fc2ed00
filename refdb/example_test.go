package refdb_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

const (
	oldMain refdb.Value = "1111111111111111111111111111111111111111"
	newMain refdb.Value = "2222222222222222222222222222222222222222"
)

// Opening a database: its schema is made by "refdbctl migrate up" or, as here,
// by the program itself. PostgreSQL and Spanner are opened in the same way.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "refdb")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	url := "sqlite:" + filepath.Join(dir, "refs.sqlite")

	schema, err := sqlite.Migrator(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(schema.Up(ctx), schema.Close()); err != nil {
		log.Fatal(err)
	}

	driver, err := sqlite.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	db, err := refdb.New(driver, refdb.Options{Site: "eu-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Update(ctx, "my/project", []refdb.Update{{Ref: "refs/heads/main", New: oldMain}})
	if err != nil {
		log.Fatal(err)
	}
	value, err := db.Get(ctx, "my/project", "refs/heads/main")
	fmt.Println(value, err)
	// Output: 1111111111111111111111111111111111111111 <nil>
}

// An update of several refs moves all of them or none. Its error says what is in the way.
func ExampleDB_Update() {
	ctx, db := context.Background(), exampleDB()
	defer db.Close()

	err := db.Update(ctx, "my/project", []refdb.Update{
		{Ref: "refs/heads/main", Old: oldMain, New: newMain},
		{Ref: "refs/tags/v1", Old: oldMain, New: newMain}, // there is no such tag
	})
	var mismatch *refdb.MismatchError
	if errors.As(err, &mismatch) {
		for _, m := range mismatch.Mismatches {
			fmt.Printf("%s: unknown: %v\n", m.Ref, m.Have == refdb.Unknown)
		}
	}
	value, err := db.Get(ctx, "my/project", "refs/heads/main")
	fmt.Println("main was left alone:", value == oldMain, err)
	// Output:
	// refs/tags/v1: unknown: true
	// main was left alone: true <nil>
}

// A lock guards work, and fences the writes made through it.
func ExampleDB_Lock() {
	ctx, db := context.Background(), exampleDB()
	defer db.Close()

	lock, err := db.Lock(ctx, "my/project", "refs/heads/main")
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	old, err := lock.Value("refs/heads/main")
	if err != nil {
		log.Fatal(err)
	}
	work := func(ctx context.Context, from refdb.Value) refdb.Value { return newMain }
	value := work(lock.Context(), old)

	err = lock.UpdateAndRelease(ctx, []refdb.Update{
		{Ref: "refs/heads/main", Old: old, New: value},
	})
	fmt.Println(err, errors.Is(lock.Err(), refdb.ErrReleased))
	// Output: <nil> true
}

// WithLock releases the lock whatever happens to the work.
func ExampleDB_WithLock() {
	ctx, db := context.Background(), exampleDB()
	defer db.Close()

	err := db.WithLock(ctx, "my/project", []string{"refs/heads/main"}, func(ctx context.Context, lock *refdb.Lock) error {
		old, err := lock.Value("refs/heads/main")
		if err != nil {
			return err
		}
		// … work that ends when ctx does …
		return lock.UpdateAndRelease(ctx, []refdb.Update{{Ref: "refs/heads/main", Old: old, New: newMain}})
	})
	value, getErr := db.Get(ctx, "my/project", "refs/heads/main")
	fmt.Println(value == newMain, err, getErr)
	// Output: true <nil> <nil>
}

// TryLock does not wait; the error names who holds the lock.
func ExampleDB_TryLock() {
	ctx, db := context.Background(), exampleDB()
	defer db.Close()

	if _, err := db.TryLock(ctx, "my/project", "refs/heads/main"); err != nil {
		log.Fatal(err)
	}
	_, err := db.TryLock(ctx, "my/project", "refs/heads/main", "refs/heads/topic")
	var locked *refdb.LockedError
	if errors.As(err, &locked) {
		holder := locked.Holders[0]
		fmt.Println(holder.Ref, holder.Owner == db.Owner(), refdb.ClassOf(err))
	}
	// Output: refs/heads/main true retryable
}

// Refs lists a project of any size page by page.
func ExampleDB_Refs() {
	ctx, db := context.Background(), exampleDB()
	defer db.Close()

	for ref, err := range db.Refs(ctx, "my/project", "refs/heads/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ref.Name, ref.Value)
	}
	// Output: refs/heads/main 1111111111111111111111111111111111111111
}

// An intent records a move before it is made outside the database, such as in a Git
// repository. After a crash it tells what may have been done, and nobody else can
// move the ref until the intent is ended.
func ExampleDB_Intents() {
	ctx, db := context.Background(), exampleDB()
	defer db.Close()

	prepared, err := db.Intents().Prepare(ctx, "my/project", []refdb.Update{
		{Ref: "refs/heads/main", Old: oldMain, New: newMain},
	}, "process 42")
	if err != nil {
		log.Fatal(err)
	}
	for intent, err := range db.Intents().All(ctx, driver.IntentFilter{Project: "my/project"}) {
		fmt.Println(intent.Ref, intent.New == newMain, intent.Agent, err)
	}
	err = db.Update(ctx, "my/project", []refdb.Update{{Ref: "refs/heads/main", Old: oldMain, New: refdb.Deleted}})
	fmt.Println("others are refused:", errors.Is(err, refdb.ErrLocked))

	moveInRepository := func() bool { return true }
	if moveInRepository() {
		err = db.Intents().Finish(ctx, prepared, []string{"refs/heads/main"}, nil)
	} else {
		err = db.Intents().Finish(ctx, prepared, nil, []string{"refs/heads/main"})
	}
	fmt.Println("finished:", err)
	// Output:
	// refs/heads/main true process 42 <nil>
	// others are refused: true
	// finished: <nil>
}

// exampleDB is a database in which main holds oldMain.
func exampleDB() *refdb.DB {
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "eu-1"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Put(context.Background(), "my/project", "refs/heads/main", oldMain); err != nil {
		log.Fatal(err)
	}
	return db
}
