package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// SaveState writes v to a file of the daemon's state, durably.
func SaveState(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteState(path, append(b, '\n'))
}

// LoadState reads what [SaveState] wrote last, if anything.
func LoadState(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("reading the daemon's state: %w", err)
	}
	return nil
}
