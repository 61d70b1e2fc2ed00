package main

import (
	"fmt"
	"slices"
	"time"
)

// checkHolders finds sections on one ref that overlap: P1.
//
// A section's beginning is read from the clock after the lock was acquired. Its
// end is read before a call of Lock.Err that returned nil. So neither a slow nor a
// frozen process looks like a violation, and no violation is excused.
func checkHolders(w *checkInput) (looked int, found []violation) {
	for ref, holdings := range w.byRef() {
		var open []*holding // those that may still be held
		for _, s := range holdings {
			looked++
			open = slices.DeleteFunc(open, func(o *holding) bool { return o.held <= s.entered })
			for _, o := range open {
				// Even where P4 is void, the overlap is at most a lease: a beat after the takeover
				// finds the lock lost, and without a beat the lease ends.
				if w.voidsP4(o.asked, s.entered) && o.held <= s.entered.add(leaseTime) {
					continue
				}
				found = append(found, violation{
					Text:     fmt.Sprintf("two holders of %s for at least %s", ref, o.held.sub(s.entered)),
					Evidence: []string{o.String(), s.String()},
				})
			}
			open = append(open, s)
		}
	}
	// Locks are lost with the data.
	for _, lost := range w.dataLost {
		for _, s := range w.holdings {
			if s.entered < lost.from && s.held > lost.from.add(leaseTime) {
				found = append(found, violation{
					Text:     "a holder did not notice that the database lost its lock",
					Evidence: []string{s.String(), fmt.Sprintf("lost at %d", lost.from)},
				})
			}
		}
	}
	return looked, found
}

// checkTokens finds acquisitions whose token is not larger than that of an earlier
// holding of the same ref, which had begun before the lock was asked for.
func checkTokens(w *checkInput) (looked int, found []violation) {
	for ref, holdings := range w.byRef() {
		asked := slices.Clone(holdings)
		slices.SortFunc(asked, func(a, b *holding) int { return int(a.asked - b.asked) })
		var latest *holding // of those that had begun
		next := 0
		for _, s := range asked {
			looked++
			for next < len(holdings) && holdings[next].entered < s.asked {
				if latest == nil || holdings[next].token > latest.token {
					latest = holdings[next]
				}
				next++
			}
			if latest != nil && s.token <= latest.token {
				found = append(found, violation{
					Text:     fmt.Sprintf("a token of %s regressed by %d µs", ref, latest.token-s.token),
					Evidence: []string{latest.String(), s.String()},
				})
			}
		}
	}
	return looked, found
}

// checkLoss finds holders that ran all the time, and were told of their loss only
// when another held their lock already, or never: P4.
func checkLoss(w *checkInput) (looked int, found []violation) {
	for ref, holdings := range w.byRef() {
		for i, s := range holdings {
			next := successor(s, holdings[i+1:])
			if s.left || next == nil {
				continue
			}
			looked++
			switch {
			case s.noticed == 0 && w.latest[siteOf(s.id)] > next.entered.add(leaseTime+time.Second):
				found = append(found, violation{
					Text:     fmt.Sprintf("a holder of %s was never told of its loss", ref),
					Evidence: []string{s.String(), next.String()},
				})
			case s.noticed > next.entered && !w.wasFrozen(siteOf(s.id), s.entered, s.noticed) && !w.voidsP4(s.asked, next.entered):
				found = append(found, violation{
					Text:     fmt.Sprintf("a holder of %s was told of its loss %s after the takeover", ref, s.noticed.sub(next.entered)),
					Evidence: []string{s.String(), next.String()},
				})
			}
		}
	}
	return looked, found
}

// successor returns the first of the later holdings that took the lock over.
func successor(s *holding, later []*holding) *holding {
	for _, next := range later {
		if next.token > s.token {
			return next
		}
	}
	return nil
}
