// Work with checkpoints, on the public API of package refdb: any number of processes share targets,
// and go on where a process that died had come to.
//
//	work submit TARGET...    add targets
//	work run DIRECTORY       work on them until none is left, with a journal in the directory
//
// The environment variable REFDB_URL names the database.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
)

// workers is how many targets a process works on at once.
const workers = 16

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], refdb.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, o refdb.Options) error {
	driver, err := drivers.Open(ctx, os.Getenv("REFDB_URL"))
	if err != nil {
		return err
	}
	o.Logger, o.DigestKey = slog.New(slog.NewTextHandler(os.Stderr, nil)), []byte(rand.Text())
	db, err := refdb.New(driver, o)
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer db.Close()
	q := &Queue{DB: db, Project: "work", Log: o.Logger, Key: o.DigestKey}
	switch {
	case len(args) > 1 && args[0] == "submit":
		return q.Submit(ctx, args[1:]...)
	case len(args) == 2 && args[0] == "run":
		return q.Run(ctx, workers, Journal(args[1]).Step)
	default:
		return errors.New("give: submit TARGET..., or: run DIRECTORY")
	}
}
