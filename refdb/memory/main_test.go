package memory_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestMain(m *testing.M) { local.Main(m) }
