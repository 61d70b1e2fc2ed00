package wire_test

import (
	"os/exec"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A word may be shown, pasted into a shell, and is then the text.
func TestAWordOfACommandIsItsTextAndCanBeShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"refs/heads/main": "refs/heads/main", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(reboot)": "'$(reboot)'", "ü": "'ü'",
		"$(reboot)\u202e":       `$'$(reboot)\342\200\256'`,
		"a\nreboot\n":           `$'a\012reboot\012'`,
		"it's\\\x1b[2J\xff`id`": `$'it\'s\\\033[2J\377` + "`id`'",
	} {
		word := wire.ShellWord(text)
		if word != want {
			t.Errorf("%q: got %s, want %s", text, word, want)
		}
		if wire.Printable(word) != word {
			t.Errorf("%q: %q is not printable", text, word)
		}
		if out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s. "+word).Output(); err != nil || string(out) != text+"." {
			t.Errorf("%q: bash makes %q of it, %v", text, out, err)
		}
	}
}

func TestNoArgumentOfACommandLineIsAnOption(t *testing.T) {
	t.Parallel()
	for want, arguments := range map[string][]string{
		"refdbctl locks show team/app refs/heads/main":            {"team/app", "refs/heads/main"},
		`refdbctl locks show 'a b' 'refs/heads/$(reboot)'`:        {"a b", "refs/heads/$(reboot)"},
		"refdbctl locks show -- --db=postgres://evil.example/x x": {"--db=postgres://evil.example/x", "x"},
	} {
		if got := wire.CommandLine("refdbctl locks show", arguments...); got != want {
			t.Errorf("%q: got %s, want %s", arguments, got, want)
		}
	}
}
