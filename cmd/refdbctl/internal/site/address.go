package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/internal/addressfile"
	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// An address is the database's, which a server reads again: the password and the certificates may
// change while it runs.
type address struct {
	app    *App
	file   string // "" if the address does not come from a file, or can be read only once
	driver atomic.Pointer[driver.AddressReader]

	mu      sync.Mutex
	latest  string   // the address as last read
	seen    []string // latest and earlier addresses, whose passwords may be in use
	reading *reading // nil if no read is in progress
	refused *refused // nil if the server has not refused the address with which the database was last opened
}

// firstPause and lastPause limit the pause before the database is opened again with an address that
// the server has refused. The pause doubles with each refusal, as it does for the connections of an
// open database.
const (
	firstPause = 5 * time.Second
	lastPause  = time.Minute
)

// A refused is an address that the server refused when the database was to be opened.
type refused struct {
	address string
	err     error
	pause   time.Duration
	until   time.Time
}

// mostAddresses is the number of addresses whose passwords are removed from messages.
const mostAddresses = 8

// A reading is an attempt to read the file. All concurrent callers share one reading, because each
// read of a hanging file system blocks.
type reading struct {
	ended chan struct{}
	text  string
	err   error
	late  bool // a caller's wait has timed out
}

// addressOf returns the address that Load found. It removes the address's passwords from messages.
func (a *App) addressOf() *address {
	d := &address{app: a, file: a.addressFile}
	switch {
	case d.file == addressfile.StandardInput && addressfile.Regular(a.In) == nil:
		d.file = "" // nothing comes twice through a pipe
	case d.file != "" && d.file != addressfile.StandardInput && !isRegular(d.file):
		d.file = "" // to open a named pipe may wait for ever
	}
	d.note(a.URL)
	a.Messages = &redact.Writer{To: a.Messages, URLs: d.known}
	return d
}

// isRegular reports whether path is a file whose contents can be read again, or may become one.
func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

// note records what was read.
func (d *address) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = text
	d.seen = slices.DeleteFunc(d.seen, func(s string) bool { return s == text })
	if len(d.seen) == mostAddresses {
		d.seen = slices.Delete(d.seen, 1, 2) // the first is that of the start, the last may be in use
	}
	d.seen = append(d.seen, text)
}

// known returns the addresses that may be in use.
func (d *address) known() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.seen)
}

func (d *address) now() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest
}

// read returns the current address. It waits until ctx ends at most, and not at all if an earlier
// caller's wait for the same read has timed out.
func (d *address) read(ctx context.Context) (string, error) {
	if d.file == "" {
		return d.app.URL, nil
	}
	d.mu.Lock()
	r := d.reading
	switch {
	case r == nil:
		r = &reading{ended: make(chan struct{})}
		d.reading = r
		go d.readInto(r)
	case r.late:
		d.mu.Unlock()
		return "", d.hangs()
	}
	d.mu.Unlock()
	select {
	case <-r.ended:
		return r.text, r.err
	case <-ctx.Done():
		d.mu.Lock()
		r.late = true
		d.mu.Unlock()
		return "", fmt.Errorf("%w: %w", d.hangs(), context.Cause(ctx))
	}
}

func (d *address) hangs() error {
	return fmt.Errorf("reading the database's address from %s takes too long: check its file system", d.file)
}

func (d *address) readInto(r *reading) {
	r.text, r.err = addressfile.Read(d.file, d.app.In)
	if r.err == nil {
		d.note(r.text)
	}
	d.mu.Lock()
	d.reading = nil
	d.mu.Unlock()
	close(r.ended)
}

// open opens the database. Its new connections are made as the address says then.
func (d *address) open(ctx context.Context) (refdb.Driver, error) {
	run := *d.app.Run
	var unread error
	if run.URL, unread = d.read(ctx); unread != nil {
		run.URL = d.now()
	}
	if err := d.pauses(run.URL); err != nil {
		return nil, err
	}
	opened, err := cli.OpenURL(ctx, &run, d.app.OpenDriver)
	d.notePause(run.URL, err)
	if err != nil && unread != nil {
		return nil, fmt.Errorf("%w (%w)", err, unread)
	}
	if err != nil {
		return nil, err
	}
	if reader, ok := driver.RoleOf[driver.AddressReader](opened); ok && d.mayChange() {
		reader.ReadAddress(d.read)
		d.driver.Store(&reader)
	}
	return opened, nil
}

// pauses returns the server's refusal of an address that is not tried again yet.
func (d *address) pauses(address string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.refused; r != nil && r.address == address && time.Now().Before(r.until) {
		return fmt.Errorf("%w; it is not tried again for %v", r.err, max(time.Until(r.until), time.Second).Round(time.Second))
	}
	return nil
}

// notePause records the outcome of opening the database.
func (d *address) notePause(address string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !errors.Is(err, driver.ErrCredentials) {
		d.refused = nil
		return
	}
	pause := firstPause
	if r := d.refused; r != nil && r.address == address {
		pause = min(2*r.pause, lastPause)
	}
	d.refused = &refused{address, err, pause, time.Now().Add(pause)}
}

// mayChange reports whether credentials may change while the program runs: a file has the address,
// or names of the certificates' or the password's files are in it or in the environment.
func (d *address) mayChange() bool {
	if d.file != "" {
		return true
	}
	for _, name := range []string{"sslcert", "sslkey", "sslrootcert", "passfile"} {
		if strings.Contains(d.app.URL, name+"=") || d.app.Env("PG"+strings.ToUpper(name)) != "" {
			return true
		}
	}
	return false
}

// reread reads the address, and logs whether new connections are made as it says. A database that
// is not open yet is opened as the address says anyway; a pause after a refusal ends.
func (d *address) reread(ctx context.Context) {
	reader := d.driver.Load()
	if reader == nil {
		d.notePause("", nil)
		return
	}
	ctx, cancel := d.app.Limited(ctx)
	defer cancel()
	read, err := (*reader).Reread(ctx)
	if err != nil {
		d.app.Logger().ErrorContext(ctx, "the database's address was read again, and is not used: connections are made as before", "error", err)
		return
	}
	details := []any{"user", read.User}
	if written := d.written(); !written.IsZero() {
		details = append(details, "written", written)
	}
	d.app.Logger().InfoContext(ctx, "the database's address was read again: new connections are made as it says", details...)
	if len(read.Ignored) > 0 {
		d.app.Logger().WarnContext(ctx, "parameters of the database's address have changed since the start, and take effect after a restart", "parameters", strings.Join(read.Ignored, ", "))
	}
}

// written returns when the file was written; zero if that is not known.
func (d *address) written() time.Time {
	var info fs.FileInfo
	var err error
	switch f := addressfile.Regular(d.app.In); {
	case d.file == "":
		return time.Time{}
	case d.file != addressfile.StandardInput:
		info, err = os.Stat(d.file)
	case f != nil:
		info, err = f.Stat()
	default:
		return time.Time{}
	}
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
