package refdbtest_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
)

// The test of a driver runs the suite twice.
func Example() {
	// newDatabase returns an empty database with the driver's schema.
	newDatabase := func(tb testing.TB) refdbtest.Database { return newMemory("") }

	_ = []testing.InternalTest{
		{Name: "TestConformance", F: func(t *testing.T) { refdbtest.Run(t, newDatabase) }},
		{Name: "TestConformanceAlternating", F: func(t *testing.T) { refdbtest.Run(t, refdbtest.Alternating(newDatabase)) }},
	}
}
