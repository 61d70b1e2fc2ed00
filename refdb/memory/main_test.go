package memory_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
