package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	scheme = "sqlite"

	// maxPath is the length of the longest path that SQLite opens, less the
	// suffix of the log beside it.
	maxPath = 512 - len("-journal")
)

// address is a parsed URL.
type address struct {
	path        string // absolute
	synchronous string // "full" or "normal"
}

// parse reads the URL of a database:
//
//	sqlite:PATH[?synchronous=full|normal]
//
// PATH is all that stands between the colon and the first "?". In it %XX is
// the byte with that hexadecimal value; "%", "?" and "#" themselves are
// written %25, %3F and %23, and everything else, such as spaces and
// non-ASCII characters, stands for itself. A path that starts with "/" is
// absolute, any other is relative to the working directory. "sqlite:///a/b" is
// another way to write "sqlite:/a/b"; other forms with "//" would name a host
// and are refused.
//
// With synchronous=full, the default, what was committed survives a power
// failure; with synchronous=normal the last commits may not.
func parse(rawURL string) (address, error) {
	rest, ok := cutScheme(rawURL)
	if !ok {
		return address{}, fmt.Errorf("%w address %q: want %s:FILE", refdb.ErrInvalid, rawURL, scheme)
	}
	escaped, query, _ := strings.Cut(rest, "?")
	path, err := parsePath(escaped)
	if err != nil {
		return address{}, fmt.Errorf("%w address %q: %w", refdb.ErrInvalid, rawURL, err)
	}
	a := address{path: path}
	if a.synchronous, err = parseQuery(query); err != nil {
		return address{}, fmt.Errorf("%w address %q: %w", refdb.ErrInvalid, rawURL, err)
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

// connector opens connections that wait as long as that for a read or write of
// another process. Mode is SQLite's: rw, or rwc to create the file if it is
// missing. Other settings are those of SQLite's driver.
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
