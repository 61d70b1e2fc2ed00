// Command refdbctl looks after a global ref database: it prepares and checks
// the database, lists and purges locks, runs commands under a lock, and
// imports and compares the refs of repositories.
//
// It is thin: a command parses its arguments, calls the library and prints.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx := withSignals(context.Background())
	a := newApp(streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv})
	os.Exit(a.run(ctx, os.Args[1:]))
}

// withSignals returns a context that ends, with an *interrupted as its cause,
// with the first SIGINT or SIGTERM. The second has its usual effect.
func withSignals(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(&interrupted{signal: s})
	}()
	return ctx
}
