package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
)

// maxAddress is the size of a file that can hold an address.
const maxAddress = 64 << 10

// An address is the database's address. If it is in a file, the file may change while the server runs.
type address struct {
	file     string
	fallback string // the address, if file is ""

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
		info, err := os.Stat(d.file)
		switch {
		case err != nil:
			return "", fmt.Errorf("the database's address: %w", err)
		case !info.Mode().IsRegular() || info.Size() > maxAddress:
			return "", fmt.Errorf("the database's address: %s is not a small regular file", d.file)
		}
		content, err := os.ReadFile(d.file)
		if err != nil {
			return "", fmt.Errorf("the database's address: %w", err)
		}
		text = strings.TrimSpace(string(content))
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

// open opens the database. Each new connection uses the address that the file has then.
func (d *address) open(ctx context.Context) (refdb.Driver, error) {
	text, err := d.read(ctx)
	if err != nil {
		return nil, err
	}
	opened, err := drivers.Open(ctx, text)
	if err != nil {
		return nil, err
	}
	if reader, ok := driver.RoleOf[driver.AddressReader](opened); ok && d.file != "" {
		reader.ReadAddress(d.read)
	}
	return opened, nil
}
