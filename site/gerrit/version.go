package gerrit

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ErrVersion says that the guard is not for a version of Gerrit.
var ErrVersion = errors.New("the guard is for Gerrit 3.9 to 3.14")

// A Version is one of Gerrit's.
type Version struct {
	Text         string // such as 3.9.4
	major, minor int
}

// versionFile is in one of a WAR's jars, and has Gerrit's version.
const versionFile = "com/google/gerrit/common/Version"

// VersionOf returns the version of the Gerrit in a WAR.
func VersionOf(war string) (Version, error) {
	z, err := zip.OpenReader(war)
	if err != nil {
		return Version{}, fmt.Errorf("reading the version of the Gerrit in %s: %w", war, err)
	}
	defer z.Close()
	jars := slices.DeleteFunc(slices.Clone(z.File), func(f *zip.File) bool { return !isLibrary(f.Name) })
	// The one that has it comes first: there are some two hundred.
	slices.SortStableFunc(jars, func(a, b *zip.File) int { return named(b) - named(a) })
	for _, jar := range jars {
		text, err := versionIn(jar)
		if err != nil {
			return Version{}, fmt.Errorf("reading the version of the Gerrit in %s: %w", war, err)
		}
		if text != "" {
			return parseVersion(text)
		}
	}
	return Version{}, fmt.Errorf("%s is no Gerrit: nothing in it has a version", war)
}

func isLibrary(name string) bool { return path.Dir(name) == "WEB-INF/lib" && path.Ext(name) == ".jar" }

func named(f *zip.File) int {
	if strings.Contains(f.Name, "version") {
		return 1
	}
	return 0
}

// versionIn returns the version that a jar within a WAR has; "" if it has none.
func versionIn(jar *zip.File) (string, error) {
	text, err := readZipped(jar, jarLimit)
	if err != nil {
		return "", err
	}
	inner, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", jar.Name, err)
	}
	i := slices.IndexFunc(inner.File, func(f *zip.File) bool { return f.Name == versionFile })
	if i < 0 {
		return "", nil
	}
	version, err := readZipped(inner.File[i], 1<<10)
	return strings.TrimSpace(string(version)), err
}

// jarLimit bounds how much is read of a jar within a WAR.
const jarLimit = 256 << 20

func readZipped(f *zip.File, limit int64) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	return text, nil
}

// parseVersion takes a version as Gerrit prints it: v3.9.4, 3.13.5-12-gabcdef.
func parseVersion(text string) (Version, error) {
	v := Version{Text: strings.TrimPrefix(text, "v")}
	parts := strings.FieldsFunc(v.Text, func(r rune) bool { return r == '.' || r == '-' })
	var err1, err2 error = strconv.ErrSyntax, strconv.ErrSyntax
	if len(parts) >= 2 {
		v.major, err1 = strconv.Atoi(parts[0])
		v.minor, err2 = strconv.Atoi(parts[1])
	}
	if err1 != nil || err2 != nil {
		return v, fmt.Errorf("%w: %q is none of these versions", ErrVersion, text)
	}
	return v, nil
}

// Series returns which of the guard's jars is for this Gerrit. The error wraps [ErrVersion] if none is.
func (v Version) Series() (string, error) {
	switch {
	case v.major != 3 || v.minor < 9 || v.minor > 14:
		return "", fmt.Errorf("%w: %s was never tried", ErrVersion, v.Text)
	case v.minor < 13:
		return "3.9", nil
	}
	return "3.13", nil
}
