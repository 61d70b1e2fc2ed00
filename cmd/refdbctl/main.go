// Command refdbctl looks after a global ref database: it prepares and checks
// the database, lists and purges locks, runs commands under a lock, and
// imports and compares the refs of repositories.
//
// It is thin: a command parses its arguments, calls the library and prints.
package main

import (
	"context"
	"os"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/job"
)

func main() {
	ctx := withSignals(context.Background())
	a := newApp(streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv})
	err := a.run(ctx, os.Args[1:])
	code := a.report(err)
	if s := deathSignal(err); s != 0 {
		job.DieBySignal(s)
	}
	os.Exit(code)
}
