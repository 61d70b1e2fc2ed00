package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// temporary starts the names of files that are being written.
const temporary = "tmp-"

func isTemporary(name string) bool { return strings.HasPrefix(name, temporary) }

// put makes sure that there is a block of that content, and returns its name: the content's hash, and
// a number that is larger than those of the recorded names with the same hash.
func (a *Archive) put(content []byte, recorded map[string]refdb.Value) (name string, err error) {
	hash := sha256.Sum256(content)
	for n := 0; ; n++ {
		name = fmt.Sprintf("%x-%d", hash, n)
		if _, ok := recorded[name]; !ok {
			break
		}
	}
	path := filepath.Join(a.Dir, name)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return name, err
	}
	f, err := os.CreateTemp(a.Dir, temporary)
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	return name, os.Rename(f.Name(), path) // whoever sees the name sees all of the content
}

// get reads a block.
func (a *Archive) get(name string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(a.Dir, name))
	if err == nil && !strings.HasPrefix(name, fmt.Sprintf("%x-", sha256.Sum256(content))) {
		err = fmt.Errorf("block %s has another content", name)
	}
	return content, err
}

// syncDirectory makes the names of new files durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
