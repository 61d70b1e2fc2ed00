package gerrit

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
)

// withoutRepositoryFile has the projects that Gerrit knows but finds no repository of, one a line.
// The guard in a running Gerrit replaces it about once a minute while there are any.
const withoutRepositoryFile = "data/refdb/without-repository"

// ProjectsWithoutRepository returns the projects in the list or the index of the running Gerrit of
// which its guard last found no repository that can be opened. What was found before the Gerrit
// started says nothing about it.
func (d *Directory) ProjectsWithoutRepository(started time.Time) ([]string, error) {
	info, err := os.Stat(d.file(withoutRepositoryFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().Before(started) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(d.file(withoutRepositoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }), nil
}
