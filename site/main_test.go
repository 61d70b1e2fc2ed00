package site_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func TestMain(m *testing.M) {
	sitetest.RunLocker()
	if path := os.Getenv(relayVar); path != "" {
		relay(path)
	}
	// These tests wait for processes and clocks longer than they compute.
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		parallel.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	os.Exit(sitetest.Main(m))
}
