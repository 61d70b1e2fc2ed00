package gerrit

import (
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// A Jar is the guard's.
type Jar struct {
	Path    string
	Series  string // of Gerrit, for which it was compiled
	Session string // the version of the sessions that it has with the daemon
}

// What the manifest of the guard's jar has.
const (
	manifestSeries  = "Globalrefdb-Gerrit-Series"
	manifestSession = "Globalrefdb-Session-Version"
)

// jarPrefix begins the names of the guard's jars.
const jarPrefix = "globalrefdb-gerrit-"

// JarName returns the name of the jar for a series.
func JarName(series string) string { return jarPrefix + series + ".jar" }

// ReadJar reads what a jar says that it is.
func ReadJar(path string) (Jar, error) {
	z, err := zip.OpenReader(path)
	if err != nil {
		return Jar{}, fmt.Errorf("reading %s: %w", path, err)
	}
	defer z.Close()
	j := Jar{Path: path}
	if i := slices.IndexFunc(z.File, func(f *zip.File) bool { return f.Name == "META-INF/MANIFEST.MF" }); i >= 0 {
		text, err := readZipped(z.File[i], 1<<20)
		if err != nil {
			return j, fmt.Errorf("reading %s: %w", path, err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			switch key, value, _ := strings.Cut(lines.Text(), ":"); key {
			case manifestSeries:
				j.Series = strings.TrimSpace(value)
			case manifestSession:
				j.Session = strings.TrimSpace(value)
			}
		}
	}
	if j.Series == "" || j.Session == "" {
		return j, fmt.Errorf("%s is not the guard's jar, or of a release that is too old", path)
	}
	return j, nil
}

// FindJar returns the jar for a series, in the first of the directories that has it.
func FindJar(series string, directories []string) (Jar, error) {
	for _, dir := range directories {
		path := filepath.Join(dir, JarName(series))
		if _, err := os.Stat(path); err == nil {
			return ReadJar(path)
		}
	}
	return Jar{}, fmt.Errorf("there is no %s in %s: name it with --jar", JarName(series), strings.Join(directories, " or "))
}

// installed returns the paths of the guard's jars in the site directory.
func (d *Directory) installed() ([]string, error) {
	return filepath.Glob(filepath.Join(d.file("lib"), jarPrefix+"*.jar"))
}

// InstalledJars returns the guard's jars in the site directory.
func (d *Directory) InstalledJars() (all []Jar, err error) {
	paths, err := d.installed()
	for _, path := range paths {
		j, readErr := ReadJar(path)
		all, err = append(all, j), errors.Join(err, readErr)
	}
	return all, err
}

// PlanJar returns what is to be changed for the jar to be the guard's only one in the site directory.
func (d *Directory) PlanJar(j Jar) ([]Change, error) {
	paths, err := d.installed()
	if err != nil {
		return nil, err
	}
	want := filepath.Join(d.file("lib"), JarName(j.Series))
	var changes []Change
	for _, path := range paths {
		if path != want {
			changes = append(changes, Change{"lib", filepath.Base(path), "there", ""})
		}
	}
	switch same, err := sameContent(want, j.Path); {
	case errors.Is(err, fs.ErrNotExist):
		changes = append(changes, Change{"lib", filepath.Base(want), "", j.Path})
	case err != nil:
		return nil, err
	case !same:
		changes = append(changes, Change{"lib", filepath.Base(want), "another build", j.Path})
	}
	return changes, nil
}

// InstallJar puts the jar into the site directory, and removes others of the guard's.
func (d *Directory) InstallJar(j Jar) error {
	text, err := os.ReadFile(j.Path)
	if err == nil {
		err = os.MkdirAll(d.file("lib"), 0o755)
	}
	want := filepath.Join(d.file("lib"), JarName(j.Series))
	if same, _ := sameContent(want, j.Path); err == nil && !same {
		err = durable.WriteFile(want, text, 0o644)
	}
	if err == nil {
		err = d.removeJars(want)
	}
	if err != nil {
		return fmt.Errorf("installing the guard's jar: %w", err)
	}
	return nil
}

// PlanNoJar returns which jars [Directory.RemoveJars] removes.
func (d *Directory) PlanNoJar() (changes []Change, err error) {
	paths, err := d.installed()
	for _, path := range paths {
		changes = append(changes, Change{"lib", filepath.Base(path), "there", ""})
	}
	return changes, err
}

// RemoveJars removes the guard's jars from the site directory.
func (d *Directory) RemoveJars() error { return d.removeJars("") }

func (d *Directory) removeJars(except string) error {
	paths, err := d.installed()
	for _, path := range paths {
		if path != except {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

func sameContent(a, b string) (bool, error) {
	first, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	second, err := os.ReadFile(b)
	return err == nil && bytes.Equal(first, second), err
}

// others are the plugins that guard a Gerrit with another ref database.
var others = [...]string{"multi-site*.jar", "*-refdb*.jar", "global-refdb*.jar"}

// OtherGuards returns what is left in the site directory of another ref database: jars, and modules in gerrit.config. None of it can
// work beside the guard.
func (d *Directory) OtherGuards() (found []string) {
	for _, dir := range []string{"lib", "plugins"} {
		for _, pattern := range others {
			paths, _ := filepath.Glob(filepath.Join(d.file(dir), pattern))
			for _, path := range paths {
				found = append(found, filepath.Join(dir, filepath.Base(path)))
			}
		}
	}
	for _, key := range []string{"gerrit.installDbModule", "gerrit.installModule"} {
		for _, module := range d.gerrit.all(key) {
			if strings.Contains(module, ".multisite.") || strings.Contains(module, "globalrefdb") && !strings.HasPrefix(module, "com.github.globalrefdb.") {
				found = append(found, key+" = "+module)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
