package postgres

import (
	"strconv"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestStatementsContainTheLibrarysDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{defaultStaleAfter: driver.DefaultStaleAfter, neverStale: driver.NeverStale} {
		if got, err := strconv.ParseInt(in, 10, 64); err != nil || got != want.Microseconds() {
			t.Errorf("%s µs, want %s", in, want)
		}
	}
}
