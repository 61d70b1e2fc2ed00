package install

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// Variables are git's settings for a repository. One process reads all of them: one for each
// setting would cost more than the rest of a repository's check.
type Variables struct {
	// Local are those in the repository's own file, without the files that it includes, in
	// their order; the names are as git prints them, in lower case but for the part in the middle.
	Local map[string][]string
	// All has the names of those in any file.
	All map[string]bool
	// Ordered are those in any file, in the order in which git reads them: the last one of a name counts.
	Ordered []Variable
}

// A Variable is one of git's settings in a file. Its name is as git prints it.
type Variable struct {
	Name, Value string
	File        string // "" if it is in none
}

// ReadVariables asks git for the settings.
func ReadVariables(ctx context.Context, repo *gitrepo.Repo) (Variables, error) {
	v := Variables{Local: map[string][]string{}, All: map[string]bool{}}
	out, err := repo.Command(ctx, "config", "--null", "--show-origin", "--list").Output()
	if err != nil {
		return v, fmt.Errorf("reading git's settings: %w", gitrepo.Failure(ctx, err))
	}
	own := filepath.Join(repo.Dir(), "config")
	items := bytes.Split(bytes.TrimSuffix(out, []byte{0}), []byte{0})
	for i := 0; i+1 < len(items); i += 2 {
		name, value, _ := strings.Cut(string(items[i+1]), "\n")
		v.All[name] = true
		file, ok := strings.CutPrefix(string(items[i]), "file:")
		if ok {
			file = filepath.Clean(file)
		} else {
			file = ""
		}
		if file == own {
			v.Local[name] = append(v.Local[name], value)
		}
		v.Ordered = append(v.Ordered, Variable{name, value, file})
	}
	return v, nil
}

// Last returns the value that counts, of all files; "" if there is none.
func (v Variables) Last(key string) string {
	key = asPrinted(key)
	for _, one := range slices.Backward(v.Ordered) {
		if one.Name == key {
			return one.Value
		}
	}
	return ""
}

// Get returns the last value in the repository's own file, as git does.
func (v Variables) Get(key string) (value string, ok bool) {
	values := v.Local[asPrinted(key)]
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

// asPrinted returns a key as git prints it: SECTION.NAME or SECTION.SUBSECTION.NAME, with the subsection as it is.
func asPrinted(key string) string {
	first, last := strings.Index(key, "."), strings.LastIndex(key, ".")
	return strings.ToLower(key[:first]) + key[first:last] + strings.ToLower(key[last:])
}
