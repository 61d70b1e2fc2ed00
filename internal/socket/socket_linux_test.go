package socket

import (
	"os"
	"path/filepath"
	"testing"
)

func TestADaemonThatEndsRemovesItsOwnSocketOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sock")
	l, err := Bind(path)
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := l.File() // as a process has it between its fork and its exec
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	l.Close()
	Unbind(l, path, made)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}

	next, err := Bind(path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	Unbind(l, path, made)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another daemon's socket is gone: %v", err)
	}
}
