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
	// The Spanner client's own, which nothing ends.
	census := goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")
	if err := goleak.Find(census); err != nil && code == 0 {
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
