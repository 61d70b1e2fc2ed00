package site_test

import (
	"os"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func TestMain(m *testing.M) {
	sitetest.RunLocker()
	if path := os.Getenv(relayVar); path != "" {
		relay(path)
	}
	os.Exit(sitetest.Main(m))
}
