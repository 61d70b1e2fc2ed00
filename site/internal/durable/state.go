package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A State is the path of a small file of a daemon's state, which only the daemon's user may read.
// After a crash the file has the content of before or the new one. One process writes it at a time.
type State string

// In returns the file of that name in a state directory.
func In(state, name string) State { return State(filepath.Join(state, name)) }

// Load decodes the file's JSON into v. It reports whether there is a file.
func (s State) Load(v any) (found bool, err error) {
	text, found, err := s.LoadText()
	if !found {
		return false, err
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return true, fmt.Errorf("the daemon's state is damaged: %s: %w: move site.state aside and run refdbctl site take-over, as after the loss of its disk", s, err)
	}
	return true, nil
}

// Save replaces the content by v as JSON.
func (s State) Save(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.SaveText(string(b) + "\n")
}

// LoadText returns the file's content. It reports whether there is a file.
func (s State) LoadText() (text string, found bool, err error) {
	b, err := os.ReadFile(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("reading the daemon's state: %w", err)
	}
	return string(b), true, nil
}

// SaveText replaces the content.
func (s State) SaveText(text string) error {
	// The name is always the same, so that a process that is killed again and again leaves one
	// file.
	f, err := os.OpenFile(string(s)+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		err = replace(f, string(s), []byte(text), func() error { return nil })
	}
	if err != nil {
		return fmt.Errorf("writing the daemon's state: %w", err)
	}
	return nil
}
