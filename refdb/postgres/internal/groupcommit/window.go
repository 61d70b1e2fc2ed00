package groupcommit

import "time"

// The group-commit window: how long requests wait for each other, and how many share a commit.
const (
	// window is how long a request queues for in-flight round trips to return. On a slow network,
	// or with a slow disk, waiting for them loses more than a larger batch gains.
	window = 5 * time.Millisecond
	// gatherYields is how often a queue yields to other goroutines, at most, until it is as long as
	// the last batch was: about 50 µs if no other goroutine is runnable.
	gatherYields = 256
	// maxUnderWay is how many round trips are in flight before requests queue up.
	maxUnderWay = 2
	// fullBatch is the size from which a batch is sent beside another one: the server executes one
	// batch while the client delivers the replies of the other. A smaller batch gains more by
	// waiting for the callers whose batch returns.
	fullBatch = 32
	// maxBatch is the maximum number of requests in a batch.
	maxBatch = 128
)
