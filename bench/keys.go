package main

import "fmt"

// keysPerWorker is how many refs a worker works on, in turn. One alone would
// show how fast the database does the same page again and again.
const keysPerWorker = 100

// keys are the refs of one worker.
func keys(worker int) []string {
	return numbered(fmt.Sprintf("refs/heads/worker-%d/branch", worker), keysPerWorker)
}

// numbered returns n ref names in byte order.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%07d", prefix, i)
	}
	return names
}

// objectID returns the n-th of some object IDs.
func objectID(n int) string { return fmt.Sprintf("%040x", n+1) }

// workerCount names a case.
func workerCount(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}
