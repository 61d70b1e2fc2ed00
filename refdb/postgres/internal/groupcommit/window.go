package groupcommit

import "time"

// The group-commit window: how long requests wait for each other, and how many share a commit.
const (
	// window is how long a request queues for round trips under way to return. On a
	// slow network, or with a slow disk, there is more to lose by waiting for them
	// than to gain by a larger batch.
	window = 5 * time.Millisecond
	// gatherYields is how often a queue lets other goroutines run first, at most, until it
	// is as long as the last batch was: some 50 µs where nobody else wants to run.
	gatherYields = 256
	// maxUnderWay is how many round trips are under way before requests queue up.
	maxUnderWay = 2
	// fullBatch is how many requests a batch has that is sent beside another one:
	// the server executes one batch while the client delivers the replies of the
	// other. Fewer gain more by waiting for the callers whose batch returns.
	fullBatch = 32
	// maxBatch is how many requests a batch has at most.
	maxBatch = 128
)
