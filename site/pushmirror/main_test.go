package pushmirror_test

import (
	"os"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func TestMain(m *testing.M) { os.Exit(sitetest.Main(m)) }
