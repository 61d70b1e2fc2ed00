// Command refdbctl manages a global ref database: it prepares and checks the database, lists and
// purges locks, runs commands under a lock, and imports and compares the refs of repositories.
//
// Each command only parses its arguments, calls the library and prints.
package main

import (
	"context"
	"os"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

func main() {
	ctx := exit.WithSignals(context.Background())
	a := newApp(cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv})
	err := a.run(ctx, os.Args[1:])
	code := a.Report(err)
	if s := exit.DeathSignal(err); s != 0 {
		exit.DieBySignal(s)
	}
	os.Exit(code)
}
