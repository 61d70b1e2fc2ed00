package drivers_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	dbtest.Stop()
	// This goroutine is the Spanner client's; nothing ends it.
	census := goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")
	if err := dbtest.Leaks(census); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
