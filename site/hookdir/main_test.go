package hookdir_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// With this variable the program only provides the hooks of the program that it names, in the directory of its argument.
const providing = "REFDB_TEST_PROVIDE"

func TestMain(m *testing.M) {
	if path := os.Getenv(providing); path != "" {
		program, err := os.ReadFile(path)
		if err == nil {
			_, err = hookdir.Dir(os.Args[1]).Provide(context.Background(), program, true)
		}
		fmt.Print(err)
		os.Exit(0)
	}
	os.Exit(sitetest.Main(m))
}
