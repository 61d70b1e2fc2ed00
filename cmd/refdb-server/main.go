// Command refdb-server serves a global ref database over one port, for programs that have a token
// instead of the database's password: see docs/SERVICE.md. It keeps no state.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stderr, nil)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "refdb-server:", err)
		os.Exit(1)
	}
}
