package cli

import (
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/timespec"
)

func TestAges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "999999999999d": timespec.MaxDays * 24 * time.Hour,
	} {
		var a Age
		if err := a.Set(text); err != nil || time.Duration(a) != want {
			t.Errorf("%s: %v, %v", text, time.Duration(a), err)
		}
	}
	for _, text := range []string{"", "x", "d", "-1s", "0s", "-2d", "0d", "1.5d", "2026-01-01", "1e9h99"} {
		var a Age
		if err := a.Set(text); err == nil || a != 0 {
			t.Errorf("%q was accepted as %v", text, time.Duration(a))
		}
	}
}
