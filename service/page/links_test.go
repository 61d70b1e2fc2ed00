package page

import (
	"strings"
	"testing"
	"time"
)

func TestValuesAndAgesAreShort(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "none", strings.Repeat("0", 40): "deleted", strings.Repeat("0", 64): "deleted", strings.Repeat("1", 40): "111111111111",
		strings.Repeat("a", 64): "aaaaaaaaaaaa", strings.Repeat("ü", 4000): strings.Repeat("ü", 100) + "…", "ref: refs/heads/main": "ref: refs/heads/main", "7": "7", "a\u202eb": `"a\u202eb"`,
	} {
		if got := short(value); got != want {
			t.Errorf("%q: got %s", value, got)
		}
	}
	for age, want := range map[time.Duration]string{
		0: "0s", 59900 * time.Millisecond: "59s", 61 * time.Second: "1m 1s", 90 * time.Minute: "1h 30m", 100 * time.Hour: "4 days",
	} {
		if got := ago(age); got != want {
			t.Errorf("%s: got %s", age, got)
		}
	}
}

func TestOwnersOfLocksAreNamed(t *testing.T) {
	t.Parallel()
	for owner, want := range map[string]string{"/ci/x": "ci", "/gitlab:a%2Fb/x": "gitlab:a/b", "eu-1/host:1:x": "eu-1/host:1:x", "": ""} {
		if got := ownerText(owner); got != want {
			t.Errorf("%q: got %q", owner, got)
		}
	}
}
