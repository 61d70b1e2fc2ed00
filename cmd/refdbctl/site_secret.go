package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// standardInput names it instead of a file.
const standardInput = "-"

// readAddress reads the database's address from a file, which holds nothing else.
func (a *app) readAddress(path string) (string, error) {
	var in io.Reader = a.in
	if path != standardInput {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("reading the database's address: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, 64<<10))
	if err != nil {
		return "", fmt.Errorf("reading the database's address from %s: %w", path, err)
	}
	address := strings.TrimSpace(string(text))
	if address == "" {
		return "", fmt.Errorf("the database's address: %s is empty: it should hold a URL", path)
	}
	return address, nil
}
