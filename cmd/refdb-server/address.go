package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/internal/addressfile"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
)

// An address is the database's address. If it is in a file, the file may change while the server runs.
type address struct {
	file     string    // as for package addressfile
	input    io.Reader // standard input
	fallback string    // the address, if file is ""

	mu   sync.Mutex
	seen []string // the latest addresses, whose passwords may be in use
}

// mostAddresses is how many addresses are kept out of messages.
const mostAddresses = 8

// known returns the addresses that messages must not show.
func (d *address) known() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.seen)
}

func (d *address) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.seen, text) {
		return
	}
	d.seen = append(d.seen, text)
	d.seen = d.seen[max(0, len(d.seen)-mostAddresses):]
}

// read returns the address. An error does not contain the address, which may have a password.
func (d *address) read(context.Context) (string, error) {
	text := d.fallback
	if d.file != "" {
		if err := d.isFile(); err != nil {
			return "", err
		}
		var err error
		text, err = addressfile.Read(d.file, d.input)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("%w, as docs/SERVICE.md shows", err)
		case err != nil:
			return "", err
		}
	}
	if text == "" {
		return "", errors.New("no database named: give --database-file FILE or set REFDB_URL, with " + drivers.URLForms)
	}
	d.note(text)
	if _, err := drivers.DialectOf(text); err != nil {
		return "", errors.New("the database's address is of an unknown form: give " + drivers.URLForms)
	}
	return text, nil
}

// isFile returns an error if the file can't be read again for each connection: opening a named pipe may
// wait forever, and nothing comes through a pipe twice.
func (d *address) isFile() error {
	if d.file == addressfile.StandardInput {
		if addressfile.Regular(d.input) == nil {
			return errors.New("the database's address: standard input is not a file, which the server reads again: give --database-file FILE, or < FILE")
		}
		return nil
	}
	if info, err := os.Stat(d.file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("the database's address: %s is not a regular file", d.file)
	}
	return nil
}

// open opens the database. Its new connections are made as the file says then.
func (d *address) open(ctx context.Context) (refdb.Driver, error) { return d.openAs(ctx, d.read) }

// openForRules opens the database with few connections, for the reader of the tokens and rules.
func (d *address) openForRules(ctx context.Context) (refdb.Driver, error) {
	return d.openAs(ctx, func(ctx context.Context) (string, error) {
		text, err := d.read(ctx)
		if err != nil {
			return "", err
		}
		text = withFewConnections(text)
		d.note(text)
		return text, nil
	})
}

// fewConnections are enough for requests one after another, beside one that follows changes.
const fewConnections = "pool_max_conns=2&pool_min_conns=0&pool_min_idle_conns=0"

// withFewConnections returns an address of the same database with a small pool, if it has a form in
// which a parameter can be put.
func withFewConnections(address string) string {
	if dialect, err := drivers.DialectOf(address); err != nil || dialect != migrations.Postgres || strings.Contains(address, "#") {
		return address
	}
	before, query, _ := strings.Cut(address, "?")
	parameters := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool {
		name, _, _ := strings.Cut(p, "=")
		return name == "" || name == "pool_max_conns" || name == "pool_min_conns" || name == "pool_min_idle_conns"
	})
	return before + "?" + strings.Join(append(parameters, fewConnections), "&")
}

func (d *address) openAs(ctx context.Context, read func(context.Context) (string, error)) (refdb.Driver, error) {
	text, err := read(ctx)
	if err != nil {
		return nil, err
	}
	opened, err := drivers.Open(ctx, text)
	if err != nil {
		return nil, err
	}
	if reader, ok := driver.RoleOf[driver.AddressReader](opened); ok && d.file != "" {
		reader.ReadAddress(read)
	}
	return opened, nil
}
