package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// Variables are git's settings for a repository. One process reads all of them: a process for each
// setting would cost more than the rest of a repository's check.
type Variables struct {
	// Local are the settings in the repository's own file, without the files that it includes, in
	// their order. The names are as git prints them, in lower case except for the subsection.
	Local map[string][]string
	// All contains the names of the settings in any file.
	All map[string]bool
	// Ordered are the settings of all work trees, in the order in which git reads them: the last
	// one of a name counts.
	Ordered []Variable
	// OfWorkTrees are the settings of a single work tree, the repository's own or a linked one,
	// which git reads after all others.
	OfWorkTrees []Variable
}

// A Variable is a git setting in a file. Its name is as git prints it.
type Variable struct {
	Name, Value string
	File        string // "" if it is in none
}

// hidesRefs reports whether v is a setting that hides refs from pushes.
func (v Variable) hidesRefs() bool {
	return v.Name == "transfer.hiderefs" || v.Name == "receive.hiderefs"
}

const workTreeConfig = "config.worktree"

// ReadVariables reads the settings from git.
func ReadVariables(ctx context.Context, repo *gitrepo.Repo) (v Variables, err error) {
	v = Variables{Local: map[string][]string{}, All: map[string]bool{}}
	all, err := list(ctx, repo)
	if err != nil {
		return v, err
	}
	own, ofWorkTree := filepath.Join(repo.Dir(), "config"), false
	for _, one := range all {
		// Git reads the work tree's file last, followed by settings that are in no file.
		ofWorkTree = one.File != "" && (ofWorkTree || filepath.Base(one.File) == workTreeConfig)
		if ofWorkTree {
			continue
		}
		v.Ordered = append(v.Ordered, one)
		v.All[one.Name] = true
		if one.File == own {
			v.Local[one.Name] = append(v.Local[one.Name], one.Value)
		}
	}
	if !v.All["extensions.worktreeconfig"] {
		return v, nil
	}
	files := []string{filepath.Join(repo.Dir(), workTreeConfig)}
	linked, err := filepath.Glob(filepath.Join(repo.Dir(), "worktrees", "*", workTreeConfig))
	if err != nil {
		return v, err
	}
	for _, file := range append(files, linked...) {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		more, err := list(ctx, repo, "--includes", "--file", file)
		if err != nil {
			return v, err
		}
		v.OfWorkTrees = append(v.OfWorkTrees, more...)
	}
	return v, nil
}

// list returns the settings in the files that git reads, or in the files given by where.
func list(ctx context.Context, repo *gitrepo.Repo, where ...string) (all []Variable, err error) {
	out, err := repo.Command(ctx, slices.Concat([]string{"config"}, where, []string{"--null", "--show-origin", "--list"})...).Output()
	if err != nil {
		return nil, fmt.Errorf("reading git's settings: %w", gitrepo.Failure(ctx, err))
	}
	items := bytes.Split(bytes.TrimSuffix(out, []byte{0}), []byte{0})
	for i := 0; i+1 < len(items); i += 2 {
		name, value, _ := strings.Cut(string(items[i+1]), "\n")
		file, ok := strings.CutPrefix(string(items[i]), "file:")
		if ok {
			file = filepath.Clean(file)
		} else {
			file = ""
		}
		all = append(all, Variable{name, value, file})
	}
	return all, nil
}

// Last returns the effective value, from all files; "" if there is none.
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

// asPrinted returns a key as git prints it: SECTION.NAME or SECTION.SUBSECTION.NAME, with the
// subsection as it is.
func asPrinted(key string) string {
	first, last := strings.Index(key, "."), strings.LastIndex(key, ".")
	return strings.ToLower(key[:first]) + key[first:last] + strings.ToLower(key[last:])
}
