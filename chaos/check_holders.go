package main

import (
	"fmt"
	"slices"
	"time"
)

// checkHolders finds sections on one ref that overlap: P1.
//
// A section's beginning is a time after the lock was acquired, and its end one
// at which Lock.Err returned nil, taken before it was called: so that neither a
// slow nor a frozen process looks like a violation, and none is excused.
func checkHolders(w *world) (looked int, found []violation) {
	for ref, holdings := range w.byRef() {
		var open []*holding // that may still be held
		for _, s := range holdings {
			looked++
			open = slices.DeleteFunc(open, func(o *holding) bool { return o.held <= s.entered })
			for _, o := range open {
				// Whatever voids P4, a beat after the takeover finds the lock lost,
				// and none after the last that succeeded ends the lease.
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
	// Data that is lost takes all locks with it.
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

// checkTokens finds acquisitions whose token is not larger than one of the same
// ref that was there before they were asked for.
func checkTokens(w *world) (looked int, found []violation) {
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

// checkLoss finds holders that were told of their loss only when another held
// their lock already, though they ran all the time, or never: P4.
func checkLoss(w *world) (looked int, found []violation) {
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

// successor returns the first of later holdings that took the lock over.
func successor(s *holding, later []*holding) *holding {
	for _, next := range later {
		if next.token > s.token {
			return next
		}
	}
	return nil
}
