package linearizability_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

func Example() {
	// In each process, with a file of its own:
	var file bytes.Buffer
	ctx := context.Background()
	client, err := linearizability.Open(linearizability.NewRecorder(&file), newMemory("", false), refdb.Options{Site: "eu-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if lock, err := client.TryLock(ctx, "company/product", "refs/heads/main"); err == nil {
		// Errors are part of the history.
		_ = lock.UpdateAndRelease(ctx, []refdb.Update{{Ref: "refs/heads/main", New: "1111111111111111111111111111111111111111"}})
	}
	if err := client.Close(); err != nil { // also if something could not be recorded
		fmt.Println(err)
	}

	// Afterwards, with the files of all of them:
	ops, err := linearizability.Read(&file)
	if err != nil {
		fmt.Println(err)
		return
	}
	report := linearizability.Check(ops, time.Minute)
	fmt.Println(len(ops), "calls:", report.Verdict)
	// Output: 2 calls: linearizable
}
