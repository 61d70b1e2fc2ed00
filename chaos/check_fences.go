package main

import (
	"fmt"
	"sort"
)

// checkFences finds fenced updates that were accepted with a stale token, or
// between the updates of another holder: P2.
func checkFences(w *checkInput) (looked int, found []violation) {
	holdings := w.byRef()
	for ref, c := range buildChains(w) {
		for _, ch := range c.byRoot {
			var latest *update
			for _, u := range ch.values {
				if u.token == 0 {
					continue
				}
				looked++
				if latest != nil && u.token < latest.token {
					found = append(found, violation{
						Text:     fmt.Sprintf("a fenced update of %s came after one with a later token", ref),
						Evidence: []string{latest.String(), u.String()},
					})
				} else {
					latest = u
				}
			}
		}
		for _, u := range c.writers {
			if u.token == 0 {
				continue
			}
			if u.mismatch && !w.voidsP4(u.sent.add(-leaseTime), u.answered) {
				found = append(found, violation{
					Text:     fmt.Sprintf("%s was moved by another while its lock stood", ref),
					Evidence: []string{u.String()},
				})
			}
			if s := latestBefore(holdings[ref], u.sent); u.outcome == accepted && s != nil && s.token > u.token {
				found = append(found, violation{
					Text:     fmt.Sprintf("a stale token was accepted for %s", ref),
					Evidence: []string{s.String(), u.String()},
				})
			}
		}
	}
	return looked, found
}

// latestBefore returns the holding with the largest token among those that began
// before t. The holdings are in the order of their beginning.
func latestBefore(holdings []*holding, t instant) (latest *holding) {
	for _, s := range lastBefore(holdings, t) {
		if latest == nil || s.token > latest.token {
			latest = s
		}
	}
	return latest
}

// lastBefore returns the last few holdings that began before t. Earlier ones have
// ended, or checkHolders finds them.
func lastBefore(holdings []*holding, t instant) []*holding {
	n := sort.Search(len(holdings), func(i int) bool { return holdings[i].entered >= t })
	return holdings[max(0, n-10):n]
}

// checkMandatory finds updates without a fence that were accepted although somebody
// held a fresh lock on the ref from before they were sent until after they were answered.
func checkMandatory(w *checkInput) (looked int, found []violation) {
	holdings := w.byRef()
	for _, u := range w.updates {
		if u.token != 0 || u.outcome != accepted {
			continue
		}
		looked++
		for _, m := range u.moves {
			for _, s := range lastBefore(holdings[m.Ref], u.sent) {
				if s.held >= u.answered && !w.voidsP4(s.asked, s.held) {
					found = append(found, violation{
						Text:     fmt.Sprintf("%s was moved past a lock that stood", m.Ref),
						Evidence: []string{s.String(), u.String()},
					})
				}
			}
		}
	}
	return looked, found
}
