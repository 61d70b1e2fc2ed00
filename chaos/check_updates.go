package main

import "fmt"

// checkChains finds accepted updates that are not in their ref's chain, and refused
// ones that are. Updates of unknown outcome may be there or not.
func checkChains(w *checkInput) (looked int, found []violation) {
	for ref, c := range buildChains(w) {
		found = append(found, c.gaps()...)
		for value, u := range c.writers {
			looked++
			p, there := c.at[value]
			switch {
			case u.outcome == accepted && !there:
				found = append(found, violation{
					Text:     fmt.Sprintf("an acknowledged update of %s is lost", ref),
					Evidence: []string{u.String(), fmt.Sprintf("the database holds %s", w.final[ref])},
				})
			case u.outcome == refused && there:
				evidence := []string{u.String()}
				if p.index+1 < len(p.chain.values) {
					evidence = append(evidence, "seen by "+p.chain.values[p.index+1].String())
				}
				found = append(found, violation{Text: fmt.Sprintf("a refused update of %s is visible", ref), Evidence: evidence})
			}
		}
		// Values that were read must be there, too.
		for _, r := range w.reads {
			if r.ref != ref || r.value == "" {
				continue
			}
			looked++
			u, written := c.writers[r.value]
			_, there := c.at[r.value]
			if there {
				continue
			}
			evidence := []string{fmt.Sprintf("read %q from %d to %d", r.value, r.from, r.to)}
			if !written {
				found = append(found, violation{Text: fmt.Sprintf("a value of %s was read that nobody wrote", ref), Evidence: evidence})
				continue
			}
			// If the data was lost, nobody knows which updates of unknown outcome had happened.
			if root, ok := c.rootOf(r.value); ok && c.byRoot[root.value] != nil && !c.byRoot[root.value].last && u.outcome == unknown {
				continue
			}
			found = append(found, violation{
				Text:     fmt.Sprintf("a value of %s was read, of an update that did not happen or is lost", ref),
				Evidence: append(evidence, u.String()),
			})
		}
	}
	return looked, found
}

// checkOrder finds updates and reads whose order in the chain contradicts the
// order in which they happened. A linearizable ref has none.
func checkOrder(w *checkInput) (looked int, found []violation) {
	all := buildChains(w)
	// By chain, for each value: of the updates from there on, the one that was answered first.
	behind := make(map[*chain][]*update)
	for _, c := range all {
		for _, ch := range c.byRoot {
			var sent *update // the one that was sent last, so far
			for _, u := range ch.values {
				looked++
				if sent != nil && u.outcome == accepted && u.answered < sent.sent {
					found = append(found, violation{
						Text:     fmt.Sprintf("an update of %s came after one that was sent later than it was answered", ch.ref),
						Evidence: []string{sent.String(), u.String()},
					})
				}
				if sent == nil || u.sent > sent.sent {
					sent = u
				}
			}
			soonest := make([]*update, len(ch.values)+1)
			for i := len(ch.values) - 1; i >= 0; i-- {
				soonest[i] = soonest[i+1]
				if u := ch.values[i]; u.outcome == accepted && (soonest[i] == nil || u.answered < soonest[i].answered) {
					soonest[i] = u
				}
			}
			behind[ch] = soonest
		}
	}
	for _, r := range w.reads {
		c, ok := all[r.ref]
		if !ok {
			continue
		}
		p, ok := c.at[r.value]
		if !ok {
			continue // checkChains finds it
		}
		looked++
		evidence := fmt.Sprintf("read %q from %d to %d", r.value, r.from, r.to)
		if next := behind[p.chain][p.index+1]; next != nil && next.answered < r.from {
			found = append(found, violation{
				Text:     fmt.Sprintf("a read of %s returned a value that had been replaced", r.ref),
				Evidence: []string{evidence, next.String()},
			})
		}
		if u := p.chain.values[p.index]; u.sent > r.to {
			found = append(found, violation{
				Text:     fmt.Sprintf("a read of %s returned a value before it was written", r.ref),
				Evidence: []string{evidence, u.String()},
			})
		}
	}
	return looked, found
}

// checkWhole finds updates of several refs that happened in part: P6.
func checkWhole(w *checkInput) (looked int, found []violation) {
	all := buildChains(w)
	for _, u := range w.updates {
		if len(u.moves) < 2 {
			continue
		}
		looked++
		var there, gone []string
		for _, m := range u.moves {
			c := all[m.Ref]
			switch p, ok := c.at[m.New]; {
			case ok && p.chain.last:
				there = append(there, m.Ref)
			case !ok:
				gone = append(gone, m.Ref)
			}
		}
		if len(there) > 0 && len(gone) > 0 {
			found = append(found, violation{
				Text:     fmt.Sprintf("an update of several refs moved %v, and not %v", there, gone),
				Evidence: []string{u.String()},
			})
		}
	}
	return looked, found
}
