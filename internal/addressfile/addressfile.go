// Package addressfile reads the database's address from a file that holds nothing else, for programs
// that read it again while they run.
package addressfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// StandardInput is given instead of a file's name.
const StandardInput = "-"

// most is the size of a file that can hold an address.
const most = 64 << 10

// Read returns the address in a file, or in standard input if path is StandardInput. Input is the
// program's standard input: if it is a file, each call reads it from its beginning, and it stays open.
func Read(path string, input io.Reader) (string, error) {
	in, err := open(path, input)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(in, most))
	if c, ok := in.(io.Closer); ok && path != StandardInput {
		c.Close()
	}
	if err != nil {
		return "", fmt.Errorf("reading the database's address from %s: %w", path, err)
	}
	address := strings.TrimSpace(string(text))
	if address == "" {
		return "", fmt.Errorf("the database's address: %s is empty: it should hold a URL", path)
	}
	return address, nil
}

func open(path string, input io.Reader) (io.Reader, error) {
	if path == StandardInput {
		f := Regular(input)
		if f == nil {
			return input, nil
		}
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("reading the database's address from standard input: %w", err)
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Nlink == 0 {
			return nil, errors.New("the file with the database's address was removed or replaced: restart the program, and write into the file the next time, as with cat NEW > FILE")
		}
		return io.NewSectionReader(f, 0, info.Size()), nil
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("reading the database's address: %w: run this as root or, in a unit of systemd, open the file with StandardInput=file:%s and give --database-file -", err, path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading the database's address: %w: write the file", err)
	case err != nil:
		return nil, fmt.Errorf("reading the database's address: %w", err)
	}
	return f, nil
}

// Regular returns a program's standard input if it is a regular file, which can be read again; otherwise
// nil.
func Regular(input io.Reader) *os.File {
	f, ok := input.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return f
}
