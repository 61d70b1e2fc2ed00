package heartbeat_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

// A program that holds two leases, until somebody else takes one of them.
func Example() {
	taken := make(chan string, 1)
	beat := func(_ context.Context, names []string) ([]heartbeat.Result, error) {
		// One request renews all of them.
		results := make([]heartbeat.Result, len(names))
		for i, name := range names {
			results[i] = heartbeat.Renewed
			if name == "red" {
				results[i] = heartbeat.Lost
			}
		}
		return results, nil
	}
	keeper, err := heartbeat.New(
		heartbeat.Config{Interval: 20 * time.Millisecond, StaleAfter: time.Minute}, beat,
		func(name string, _ error) { taken <- name },
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer keeper.Close()

	// The clock is read before the leases are acquired, so that they end in time.
	sent := keeper.Now()
	red, green := keeper.Keep("red", sent), keeper.Keep("green", sent)

	fmt.Println("taken:", <-taken)
	<-red.Done()
	fmt.Println("red is lost:", errors.Is(red.Err(), heartbeat.ErrLost))
	fmt.Println("green stands:", green.Err() == nil)
	// Output:
	// taken: red
	// red is lost: true
	// green stands: true
}
