// Command testdatabase runs a database server for the tests with real Gerrits, until its standard input ends. Usage:
// testdatabase postgres|spanner LOG, the file that gets PostgreSQL's log. It prints the URL of an empty database; the URL by which that is 20 ms away, there and back, or "-"; and the
// address of the Spanner emulator if it is there. After that each line of its input is a command, which it answers with the same line: kill and start, of PostgreSQL alone, as the
// emulator keeps its data in memory.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
	"github.com/globalrefdb/globalrefdb/internal/testserver"
)

const distance = 20 * time.Millisecond

func main() {
	signal.Ignore(syscall.SIGINT) // the script's matter, which then closes the input
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: testdatabase postgres|spanner LOG")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testdatabase:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kind, log string, in io.Reader, out io.Writer) error {
	switch kind {
	case "postgres":
		return runPostgres(ctx, log, in, out)
	case "spanner":
		return runSpanner(ctx, in, out)
	}
	return fmt.Errorf("%q is no kind of database: postgres, spanner", kind)
}

func runPostgres(ctx context.Context, log string, in io.Reader, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "testdatabase-") // only in a directory of ours can the server be started again
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := testserver.StartPostgres(ctx, testserver.PostgresOptions{Dir: dir, Network: testserver.Loopback, Log: log})
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.Exec(ctx, "postgres", "CREATE DATABASE refdb"); err != nil {
		return err
	}
	far, err := faultproxy.New(faultproxy.Options{Server: faultproxy.Endpoint{Network: "tcp", Address: s.Address()}, Latency: distance / 2})
	if err != nil {
		return err
	}
	defer far.Close()
	url := s.URL("refdb")
	fmt.Fprintln(out, url, strings.Replace(url, s.Address(), far.Address(), 1))
	return serve(in, out, map[string]func() error{
		"kill":  s.Kill,
		"start": func() error { return s.Start(ctx) },
	})
}

func runSpanner(ctx context.Context, in io.Reader, out io.Writer) error {
	e, err := testserver.StartEmulator(ctx, testserver.EmulatorOptions{})
	if err != nil {
		return err
	}
	defer e.Stop()
	name, err := createSpannerDatabase(ctx, e.Address)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "spanner://"+name, "-", e.Address)
	return serve(in, out, nil)
}

// serve carries out commands until there are no more.
func serve(in io.Reader, out io.Writer, commands map[string]func() error) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		command, known := commands[lines.Text()]
		if !known {
			return fmt.Errorf("there is no command %q", lines.Text())
		}
		if err := command(); err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		fmt.Fprintln(out, lines.Text())
	}
	return lines.Err()
}
