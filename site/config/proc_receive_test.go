package config_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// As git's receive-pack has it, by its tests t5411.
func TestWhichRefsGitHandsOver(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		patterns string
		ref      string
		creates  bool
		want     bool
	}{
		{"refs/for", "refs/for/main", true, true},
		{"refs/for", "refs/for/main", false, true},
		{"refs/for/", "refs/for/main", true, true},
		{"refs/for", "refs/for", true, true},
		{"refs/for", "refs/fork", true, false},
		{"refs/for", "refs/heads/main", true, false},
		{"a:refs/heads", "refs/heads/main", true, true},
		{"a:refs/heads", "refs/heads/main", false, false},
		{"m:refs/heads", "refs/heads/main", false, true},
		{"d:refs/heads", "refs/heads/main", false, false},
		{"refs/for !:refs/heads", "refs/heads/main", true, false},
		{"refs/for !:refs/heads", "refs/tags/v1", true, true},
		{"am!:refs/heads", "refs/tags/v1", false, true},
		{"", "refs/heads/main", true, false},
	} {
		if got := config.HandedOver(strings.Fields(row.patterns), row.ref, row.creates); got != row.want {
			t.Errorf("%q, %s, creates: %t: got %t", row.patterns, row.ref, row.creates, got)
		}
	}
}
