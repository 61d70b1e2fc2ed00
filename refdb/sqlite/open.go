package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/globalrefdb/globalrefdb/migrations"
	refdbdriver "github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite/internal/filesystem"
)

const (
	scheme = "sqlite"

	// maxPath is the maximum length of a path that SQLite opens, less the suffix of the log beside
	// it.
	maxPath = 512 - len("-journal")
)

// Open opens a database file that has the schema. It creates and changes nothing, except that it
// turns the write-ahead log on. The URL is
//
//	sqlite:PATH[?synchronous=full|normal]
//
// where PATH is the path of the file, absolute or relative to the working directory, with "%", "?"
// and "#" written as %25, %3F and %23; sqlite:///PATH is an absolute path, too. With
// synchronous=normal, a power failure may undo the last transactions, including locks; full is the
// default.
//
// The error wraps driver.ErrSchema if there is no such file, or if its schema is
// missing, older or newer than this program's.
func Open(ctx context.Context, rawURL string) (*Driver, error) {
	a, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return open(ctx, a, busyLimit)
}

// open is Open, but waits for other processes only until its patience ends.
func open(ctx context.Context, a address, patience time.Duration) (*Driver, error) {
	err := stat(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, explain(a.path, "open", fmt.Errorf("%w: there is no such file: run `refdbctl migrate up`", refdbdriver.ErrSchema))
	}
	if err == nil {
		err = checkAccess(a.path)
	}
	if err != nil {
		return nil, explain(a.path, "open", err)
	}
	l, err := locationOf(a.path)
	if err == nil {
		err = l.prepareOpen(ctx, patience)
	}
	if err != nil {
		return nil, explain(a.path, "open", ended(ctx, err))
	}
	d, err := newDriver(a, l)
	if err != nil {
		return nil, explain(a.path, "open", err)
	}
	d.patience = patience
	if err := d.check(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// stat returns an error if no database file of that name exists or can exist.
func stat(path string) error {
	file, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(path)
		if parent, err := os.Stat(dir); err != nil || !parent.IsDir() {
			return fmt.Errorf("there is no directory %s: create it", dir)
		}
		return err
	case err != nil:
		return err
	case file.IsDir():
		return errors.New("it is a directory: name a file")
	case !file.Mode().IsRegular():
		return errors.New("it is not a regular file: name another")
	}
	return nil
}

// checkAccess returns an error if this process can't write to the file, its -wal or its -shm.
// SQLite would create the last two before it fails, and then their owner would lock every other
// user out of the database.
func checkAccess(path string) error {
	if !filesystem.Writable(path) {
		return errNotWritable
	}
	for _, beside := range []string{path + "-wal", path + "-shm"} {
		if !filesystem.Writable(beside) {
			return fmt.Errorf("%s can't be written to: it belongs to another user: give it the owner and mode of the database file", beside)
		}
	}
	return nil
}

var errNotWritable = errors.New("it can't be written to: " + needsAccess)

// check returns an error unless the file can be used.
func (d *Driver) check(ctx context.Context) error {
	err := d.read(ctx, "open", func(c *conn) error {
		if err := checkSchema(ctx, c); err != nil {
			return err
		}
		return checkEncoding(ctx, c)
	})
	if err != nil {
		return err
	}
	err = d.checkWriter(ctx, d.writer)
	if err == nil {
		err = d.openAnchor(ctx)
	}
	if err != nil {
		return explain(d.path, "open", ended(ctx, err))
	}
	return d.admitFirst(ctx)
}

// openAnchor opens the anchor, and records which files it has open.
func (d *Driver) openAnchor(ctx context.Context) error {
	// The first read takes the lock on the file, and opens the log.
	if _, err := pragma(ctx, d.anchor, "schema_version"); err != nil {
		return err
	}
	if err := d.location.verify(ctx); err != nil {
		return err
	}
	files, err := openFiles(d.path, d.location)
	if err == nil {
		d.files, d.server = files, serverOf(d.path, files.seen[0])
	}
	return err
}

// CheckSchema implements driver.SchemaChecker.
func (d *Driver) CheckSchema(ctx context.Context) error {
	return d.read(ctx, "check the schema", func(c *conn) error { return checkSchema(ctx, c) })
}

func checkSchema(ctx context.Context, c *conn) error {
	_, err := schemaVersion(ctx, c)
	return err
}

// schemaVersion is checkSchema, but also returns the version.
func schemaVersion(ctx context.Context, c *conn) (uint, error) {
	// Reading the catalogue costs more, and only files of earlier programs need it.
	table, missing := migrations.Table, migrations.Check(migrations.SQLite, migrations.Record{})
	known := false
	if err := c.query(ctx, func(row) { known = true }, `SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?`, table); err != nil {
		return 0, err
	}
	if !known {
		found, err := catalogue(ctx, c)
		if err != nil {
			return 0, err
		}
		table, missing = found.VersionTable(), found.Missing()
	}
	if table == "" {
		return 0, fmt.Errorf("%w: %w", refdbdriver.ErrSchema, missing)
	}
	oldest := "0"
	if table == migrations.Table {
		oldest = "coalesce(oldest, 0)"
	}
	var recorded migrations.Record
	if err := c.query(ctx, func(r row) {
		recorded = migrations.Record{Version: uint(max(r.int(0), 0)), Dirty: r.int(1) != 0, Oldest: uint(max(r.int(2), 0)), Exists: true}
	}, `SELECT CAST(version AS integer), CAST(dirty AS integer), CAST(`+oldest+` AS integer) FROM `+table); err != nil {
		return 0, err
	}
	guards, err := described(ctx, c, migrations.GuardsSQL(migrations.SQLite))
	if err != nil {
		return 0, err
	}
	recorded.Guards = guards
	if err := migrations.Check(migrations.SQLite, recorded); err != nil {
		return 0, fmt.Errorf("%w: %w", refdbdriver.ErrSchema, err)
	}
	return recorded.Version, nil
}

// catalogue reads what the file contains of our tables.
func catalogue(ctx context.Context, c *conn) (*migrations.Catalogue, error) {
	return described(ctx, c, migrations.CatalogueSQL(migrations.SQLite))
}

// described returns the answer to one of the queries for a catalogue.
func described(ctx context.Context, c *conn, query string) (*migrations.Catalogue, error) {
	found := migrations.NewCatalogue(migrations.SQLite)
	err := c.query(ctx, func(r row) { found.Add(r.text(0), r.text(1), r.text(2), r.text(3)) }, query)
	return found, err
}

// checkEncoding refuses a file whose texts aren't stored as UTF-8, because they are compared as
// bytes.
func checkEncoding(ctx context.Context, c *conn) error {
	encoding, err := pragma(ctx, c, "encoding")
	if err == nil && encoding != "UTF-8" {
		err = fmt.Errorf("its encoding is %s: only UTF-8 sorts names by their bytes; create another file", encoding)
	}
	return err
}

// checkWriter turns the write-ahead log on. Without it, readers and writers wait for each other.
// Migrations turn it on when they create the file.
func (d *Driver) checkWriter(ctx context.Context, c *conn) error {
	if err := d.retryBusy(ctx, c, time.Now().Add(d.patience), "PRAGMA journal_mode(wal)"); err != nil {
		return err
	}
	mode, err := pragma(ctx, c, "journal_mode")
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("it can't have a write-ahead log, its journal mode stays %s: move it to a local file system", mode)
	}
	// SQLite silently opens a file that it can't write to as read-only.
	readOnly, err := c.raw.(interface{ IsReadOnly(string) (bool, error) }).IsReadOnly("main")
	if err == nil && readOnly {
		err = errNotWritable
	}
	return err
}

// pragma returns the first value of a PRAGMA as text.
func pragma(ctx context.Context, c *conn, name string) (value string, err error) {
	err = c.query(ctx, func(r row) { value = fmt.Sprint(r[0]) }, "PRAGMA "+name)
	return value, err
}

// Migrator returns a migrator of the file's schema. It creates the file if there is none. The URL
// is that of [Open].
func Migrator(ctx context.Context, rawURL string) (*migrations.Migrator, error) {
	a, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	if err := stat(a.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, explain(a.path, "migrate", err)
	}
	if err := checkAccess(a.path); err != nil {
		return nil, explain(a.path, "migrate", err)
	}
	l, err := locationOf(a.path)
	if err == nil {
		err = l.prepareCreate(ctx)
	}
	if err != nil {
		return nil, explain(a.path, "migrate", ended(ctx, err))
	}
	connector, err := a.connector("rwc", busyLimit, "_journal_mode=wal")
	if err != nil {
		return nil, explain(a.path, "migrate", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	// Turning the log on fails at once if another process is doing so, too.
	err = retryBusy(ctx, nil, time.Now().Add(busyLimit), func() error { return db.PingContext(ctx) })
	if err == nil {
		err = l.verify(ctx)
	}
	if err != nil {
		return nil, errors.Join(explain(a.path, "migrate", ended(ctx, err)), db.Close())
	}
	return migrations.NewSQL(migrations.SQLite, db, nil)
}

// address is a parsed URL.
type address struct {
	path        string // absolute
	synchronous string // "full" or "normal"
}

// parse reads the URL of a database:
//
//	sqlite:PATH[?synchronous=full|normal]
//
// PATH is everything between the colon and the first "?". In it, %XX is the byte with that
// hexadecimal value; "%", "?" and "#" themselves are written %25, %3F and %23, and all other
// characters, such as spaces and non-ASCII characters, stand for themselves. A path that starts
// with "/" is absolute, any other path is relative to the working directory. "sqlite:///a/b" is
// another way to write "sqlite:/a/b"; other forms with "//" would name a host and are refused.
//
// With synchronous=full, the default, committed transactions survive a power failure; with
// synchronous=normal the last ones may not.
func parse(rawURL string) (address, error) {
	rest, ok := cutScheme(rawURL)
	if !ok {
		return address{}, fmt.Errorf("%w address %q: want %s:FILE", refdbdriver.ErrInvalid, rawURL, scheme)
	}
	escaped, query, _ := strings.Cut(rest, "?")
	path, err := parsePath(escaped)
	if err != nil {
		return address{}, fmt.Errorf("%w address %q: %w", refdbdriver.ErrInvalid, rawURL, err)
	}
	a := address{path: path}
	if a.synchronous, err = parseQuery(query); err != nil {
		return address{}, fmt.Errorf("%w address %q: %w", refdbdriver.ErrInvalid, rawURL, err)
	}
	return a, nil
}

func cutScheme(rawURL string) (rest string, ok bool) {
	before, rest, ok := strings.Cut(rawURL, ":")
	return rest, ok && strings.EqualFold(before, scheme)
}

func parsePath(escaped string) (string, error) {
	if authority, ok := strings.CutPrefix(escaped, "//"); ok {
		if !strings.HasPrefix(authority, "/") {
			return "", fmt.Errorf("what follows // would be a host: write sqlite:FILE, or sqlite:///FILE for an absolute path")
		}
		escaped = authority
	}
	if strings.Contains(escaped, "#") {
		return "", errors.New("write # as %23 in a file's name")
	}
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return "", errors.New("write % as %25 in a file's name")
	}
	switch {
	case path == "":
		return "", errors.New("no file is named: write sqlite:FILE")
	case path == ":memory:":
		return "", errors.New("a database in memory is not shared with other processes: name a file")
	case strings.Contains(path, "\x00"):
		return "", errors.New("a file's name can't hold a NUL byte")
	case strings.HasSuffix(path, "/"):
		return "", errors.New("it names a directory, not a file")
	}
	// The working directory may change later.
	path, err = filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if len(path) > maxPath {
		return "", fmt.Errorf("the path has %d bytes, at most %d are possible", len(path), maxPath)
	}
	return path, nil
}

func parseQuery(query string) (synchronous string, err error) {
	const usage = "the only parameter is synchronous, full or normal, given once"
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errors.New(usage)
	}
	synchronous = "full"
	for name, value := range values {
		if name != "synchronous" || len(value) != 1 {
			return "", fmt.Errorf("%s=%s: %s", name, strings.Join(value, ","), usage)
		}
		synchronous = value[0]
	}
	if synchronous != "full" && synchronous != "normal" {
		return "", fmt.Errorf("synchronous=%s: %s", synchronous, usage)
	}
	return synchronous, nil
}

// connector opens connections that wait for reads and writes of other processes for the given time.
// mode is SQLite's: rw, or rwc to create the file if it is missing. The other settings are those of
// SQLite's driver.
func (a address) connector(mode string, wait time.Duration, settings ...string) (driver.Connector, error) {
	query := url.Values{
		"mode":          {mode},
		"_busy_timeout": {strconv.FormatInt(wait.Milliseconds(), 10)},
		"_synchronous":  {a.synchronous},
		"_error_rc":     {"1"}, // no message of an earlier error
	}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		query.Set(name, value)
	}
	u := url.URL{Scheme: "file", Path: a.path, RawQuery: query.Encode()}
	return sqlite.NewConnector(u.String())
}
