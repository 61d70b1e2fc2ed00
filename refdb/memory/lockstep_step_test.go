package memory_test

import (
	"math/rand/v2"
	"slices"
	"time"
)

var lockstepRefs = []string{"a", "b", "c"}

// A step is a request, or a passage of time.
type step struct {
	n      int // its number
	does   string
	refs   []string
	of     int // the number of the step whose lock is meant; -1: the holder of the first of refs
	waiter int // the number of the waiter, from 1; 0: a request that does not wait
	next   int // likewise

	turn           time.Duration // of the waiter
	polls, forgets bool          // the waiter is not told; it has not heard of its place
	passed         bool          // the waiter was passed as often as may be, elsewhere
	whole          bool          // an update ends its lock, an abandonment has a nonce, an intent is done
	age            time.Duration // that passes
}

// The share of each step in all steps.
var lockstepSteps = []struct {
	does string
	n    int
}{
	{"acquire", 55}, {"release", 30}, {"age", 10}, {"abandon", 6}, {"prepare", 8}, {"update", 5}, {"repeat", 4},
	{"update-unfenced", 8}, {"revoke", 3}, {"resolve", 3}, {"purge", 2}, {"beat", 1},
}

// randomSteps are steps of a few waiters for a few refs.
func randomSteps(random *rand.Rand, n int) (steps []step) {
	oneIn := func(n int) bool { return random.IntN(n) == 0 }
	var all []string
	for _, s := range lockstepSteps {
		all = append(all, slices.Repeat([]string{s.does}, s.n)...)
	}
	refs := lockstepRefs[:1+random.IntN(len(lockstepRefs))]
	waiters, polling := 2+random.IntN(5), 1+random.IntN(4)
	for i := range n {
		s := step{
			n: i, does: all[random.IntN(len(all))], of: -1, waiter: random.IntN(waiters + 1), next: random.IntN(waiters + 1),
			turn: time.Duration(40+random.IntN(20)) * time.Second, polls: oneIn(polling), forgets: oneIn(6), passed: oneIn(12), whole: oneIn(2),
			age: time.Minute,
		}
		for _, ref := range refs {
			if oneIn(len(refs)) {
				s.refs = append(s.refs, ref)
			}
		}
		if s.refs == nil {
			s.refs = []string{refs[random.IntN(len(refs))]}
		}
		if oneIn(4) {
			s.age = 61 * time.Minute // which makes locks stale
		}
		if i > 0 && (oneIn(5) || s.does == "repeat") {
			s.of = max(0, i-1-random.IntN(12))
		}
		if s.does == "acquire" || s.does == "age" || s.does == "prepare" || s.does == "purge" || s.does == "update-unfenced" || s.does == "abandon" && !s.whole {
			s.of = 0 // of none
		}
		steps = append(steps, s)
	}
	return steps
}
