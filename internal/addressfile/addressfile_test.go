package addressfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileThatCannotBeReadIsNamedWithWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "nowhere"): "no such file or directory: write the file",
		dir:                           "is a directory",
	} {
		if _, err := Read(path, nil); err == nil || !strings.Contains(err.Error(), "database's address") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestStandardInputThatIsAFileIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "database")
	if err := os.WriteFile(path, []byte("sqlite:/one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	for _, want := range []string{"sqlite:/one", "sqlite:/one", "sqlite:/another"} {
		if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(StandardInput, input); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if err := errors.Join(os.WriteFile(path+".new", []byte("sqlite:/new"), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(StandardInput, input); err == nil || !strings.Contains(err.Error(), "removed or replaced: restart the program") {
		t.Errorf("of a file that was replaced: %v", err)
	}
	if got, err := Read(StandardInput, strings.NewReader("sqlite:/piped\n")); got != "sqlite:/piped" || err != nil {
		t.Errorf("of a pipe: %q, %v", got, err)
	}
}
