package gerrit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// The files in which the guard says how its last comparison went, and in which it is asked for one.
const (
	comparedFile = "data/refdb/compared"
	compareFile  = "data/refdb/compare"
)

// A Comparison is one of all that Gerrit's indexes have with the repositories, as the guard has noted it.
type Comparison struct {
	Ended    bool
	Time     time.Time // of its end, or its beginning
	Compared int       // changes, accounts, groups and projects; known once it has ended
	Stale    int       // of those: they were indexed then
}

// LastComparison returns the last comparison of the indexes. It reports false if none is noted.
func (d *Directory) LastComparison() (Comparison, bool, error) {
	text, err := os.ReadFile(d.file(comparedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Comparison{}, false, nil
	}
	if err != nil {
		return Comparison{}, false, err
	}
	var c Comparison
	var seconds int64
	switch n, _ := fmt.Sscanf(string(text), "ended %d %d %d\n", &seconds, &c.Compared, &c.Stale); n {
	case 3:
		c.Ended = true
	default:
		if n, _ := fmt.Sscanf(string(text), "began %d\n", &seconds); n != 1 {
			return Comparison{}, false, fmt.Errorf("%s: it has %q, which the guard has not written", d.file(comparedFile), text)
		}
	}
	c.Time = time.Unix(seconds, 0)
	return c, true, nil
}

// AskForComparison asks the guard in a Gerrit that runs to compare its indexes with the repositories.
func (d *Directory) AskForComparison() error {
	path := d.file(compareFile)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = durable.WriteFile(path, nil, 0o644)
	}
	return err
}

// ComparisonAsked returns since when a comparison is asked for that has not begun. It reports false if none is.
func (d *Directory) ComparisonAsked() (time.Time, bool) {
	info, err := os.Stat(d.file(compareFile))
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), true
}
