package engine

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestATombstoneHasTheLengthOfTheOldValue(t *testing.T) {
	for _, c := range []struct{ old, new, want driver.Value }{
		{driver.Value(strings.Repeat("a", 40)), driver.Deleted, driver.Deleted},
		{driver.Value(strings.Repeat("a", 64)), driver.Deleted, driver.Deleted256},
		{driver.Value(strings.Repeat("a", 40)), driver.Deleted256, driver.Deleted},
		{driver.Value(strings.Repeat("x", 64)), driver.Deleted, driver.Deleted}, // no object ID
		{driver.Deleted256, driver.Deleted, driver.Deleted256},
		{driver.Unknown, driver.Deleted, driver.Deleted},
		{driver.Unknown, driver.Deleted256, driver.Deleted256},
		{"42", driver.Deleted256, driver.Deleted256},
		{driver.Unknown, "x", "x"},
		{driver.Value(strings.Repeat("a", 64)), "x", "x"},
	} {
		if got := Tombstone(c.old, c.new); got != c.want {
			t.Errorf("Tombstone(%q, %q) = %q, want %q", c.old, c.new, got, c.want)
		}
	}
}
