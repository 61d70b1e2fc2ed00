package dbtest

import (
	"time"

	"go.uber.org/goleak"
)

// Leaks returns an error about goroutines that never end. Those of gRPC, and those that close a connection, end some
// time after the driver's Close.
func Leaks(options ...goleak.Option) error {
	left := goleak.Find(options...)
	for end := time.Now().Add(5 * time.Minute); left != nil && time.Now().Before(end); {
		left = goleak.Find(options...)
	}
	return left
}
