// An archive that many machines write to and one cleans, on packages refdb and lease.
//
//	archive backup DIRECTORY NAME FILE...    store files as a new backup
//	archive forget DIRECTORY NAME            remove a backup
//	archive clean DIRECTORY                  delete the blocks that no backup has
//	archive check DIRECTORY                  is any block missing?
//
// The environment variable REFDB_URL names the database.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("give: backup, forget, clean or check, and a directory")
	}
	a, err := open(ctx, args[1], refdb.Options{})
	if err != nil {
		return err
	}
	defer a.DB.Close()
	switch command, rest := args[0], args[2:]; {
	case command == "backup" && len(rest) > 1:
		var contents [][]byte
		for _, file := range rest[1:] {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			contents = append(contents, content)
		}
		return a.Backup(ctx, rest[0], contents...)
	case command == "forget" && len(rest) == 1:
		return a.Forget(ctx, rest[0])
	case command == "clean" && len(rest) == 0:
		return a.Clean(ctx)
	case command == "check" && len(rest) == 0:
		return a.Check(ctx)
	default:
		return errors.New("give: backup DIRECTORY NAME FILE..., forget DIRECTORY NAME, clean DIRECTORY or check DIRECTORY")
	}
}

// open returns the archive of the directory.
func open(ctx context.Context, dir string, o refdb.Options) (*Archive, error) {
	driver, err := drivers.Open(ctx, os.Getenv("REFDB_URL"))
	if err != nil {
		return nil, err
	}
	db, err := refdb.New(driver, o)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return &Archive{DB: db, Project: "archive", Dir: dir}, nil
}
