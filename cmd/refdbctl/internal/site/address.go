package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/redact"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// standardInput is given instead of a file's name.
const standardInput = "-"

// An address is the database's, which a server reads again: the password and the certificates may
// change while it runs.
type address struct {
	app    *App
	file   string                 // "": it is no file's
	latest atomic.Pointer[string] // as it was read last
	driver atomic.Pointer[driver.AddressReader]
}

// addressOf returns the address that Load found. It keeps its passwords out of messages.
func (a *App) addressOf() *address {
	d := &address{app: a, file: a.addressFile}
	if d.file == standardInput && a.inputFile() == nil {
		d.file = "" // nothing comes twice through a pipe
	}
	d.latest.Store(&a.URL)
	a.Messages = &redact.Writer{To: a.Messages, URL: func() string { return *d.latest.Load() }}
	return d
}

// read returns the address as it is now.
func (d *address) read() (string, error) {
	if d.file == "" {
		return d.app.URL, nil
	}
	text, err := d.app.readAddress(d.file)
	if err == nil {
		d.latest.Store(&text)
	}
	return text, err
}

// open opens the database. Its new connections are made as the address says then.
func (d *address) open(ctx context.Context) (refdb.Driver, error) {
	run := *d.app.Run
	var unread error
	if run.URL, unread = d.read(); unread != nil {
		run.URL = *d.latest.Load()
	}
	opened, err := cli.OpenURL(ctx, &run, d.app.OpenDriver)
	if err != nil && unread != nil {
		return nil, fmt.Errorf("%w (%w)", err, unread)
	}
	if err != nil {
		return nil, err
	}
	if reader, ok := driver.RoleOf[driver.AddressReader](opened); ok {
		reader.ReadAddress(d.read)
		d.driver.Store(&reader)
	}
	return opened, nil
}

// reread reads the address, and logs whether new connections are made as it says. A database that
// is not open yet is opened as the address says anyway.
func (d *address) reread(ctx context.Context) {
	reader := d.driver.Load()
	if reader == nil {
		return
	}
	ctx, cancel := d.app.Limited(ctx)
	defer cancel()
	if err := (*reader).Reread(ctx); err != nil {
		d.app.Logger().ErrorContext(ctx, "the database's address was read again, and is not used: connections are made as before", "error", err)
		return
	}
	d.app.Logger().InfoContext(ctx, "the database's address was read again: new connections are made as it says")
}

// readAddress reads the database's URL from a file that holds nothing else.
func (a *App) readAddress(path string) (string, error) {
	in, err := a.openAddress(path)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(in, 64<<10))
	if c, ok := in.(io.Closer); ok {
		c.Close()
	}
	if err != nil {
		return "", fmt.Errorf("reading the database's address from %s: %w", path, err)
	}
	address := strings.TrimSpace(string(text))
	if address == "" {
		return "", fmt.Errorf("the database's address: %s is empty: it should hold a URL", path)
	}
	return address, nil
}

// openAddress returns the contents of a file. Standard input stays open and, if it is a file, is
// read from its beginning each time.
func (a *App) openAddress(path string) (io.Reader, error) {
	if path == standardInput {
		f := a.inputFile()
		if f == nil {
			return a.In, nil
		}
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("reading the database's address from standard input: %w", err)
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Nlink == 0 {
			return nil, errors.New("the file with the database's address was removed or replaced: restart the program, and write into the file the next time, as with cat NEW > FILE")
		}
		return io.NewSectionReader(f, 0, info.Size()), nil
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("reading the database's address: %w: run this as root or, in a unit of systemd, open the file with StandardInput=file:%s and give --database-file -", err, path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading the database's address: %w: write the file, as docs/GIT.md shows", err)
	case err != nil:
		return nil, fmt.Errorf("reading the database's address: %w", err)
	}
	return f, nil
}

// inputFile returns standard input if it is a file, or nil.
func (a *App) inputFile() *os.File {
	f, ok := a.In.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return f
}
