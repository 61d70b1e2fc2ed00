package cli

import (
	"strings"
	"testing"
)

func TestWhoIsRecordedFitsTheHistory(t *testing.T) {
	t.Parallel()
	for who, want := range map[string]string{
		"anna@host":                    "anna@host",
		"a\nb\x1b@host":                "a?b?@host",
		strings.Repeat("x", 300):       strings.Repeat("x", 200),
		strings.Repeat("ä", 101):       strings.Repeat("ä", 100),
		"x" + strings.Repeat("ä", 100): "x" + strings.Repeat("ä", 99),
	} {
		if got := recordable(who); got != want {
			t.Errorf("%q: %q", who, got)
		}
	}
}
