package main

import "fmt"

const (
	leakCheck       = "no goroutine or file leaks"
	connectionCheck = "no connection leaks"

	// spare is how many more goroutines and files a paused site may use than in
	// the first pause: its pool keeps more or fewer connections.
	spare = 20
	// poolSize is how many connections a site may have. It opens the database twice,
	// each time with 16 connections, one that listens, and two spare ones.
	poolSize = 2 * 19
)

// A usage is what one start of a site reported about itself.
type usage struct {
	site  string
	first report   // before it opened the database
	quiet []report // in each pause
	last  report
}

func (s *siteProcess) usage() usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return usage{s.name, s.first, s.quiet, s.latest}
}

// checkLeaks finds sites that use more in a pause than in their first one, or
// that leave something behind after they closed the database.
func checkLeaks(all []usage) (looked int, found []violation) {
	for _, u := range all {
		for _, q := range u.quiet {
			looked++
			if first := u.quiet[0]; q.Goroutines > first.Goroutines+spare || q.Files > first.Files+spare {
				found = append(found, violation{Text: fmt.Sprintf("paused, site %s has %d goroutines and %d files; the first time it had %d and %d",
					u.site, q.Goroutines, q.Files, first.Goroutines, first.Files)})
			}
		}
		// The two journals are open by then.
		if u.last.State == closed {
			looked++
			if u.last.Goroutines > u.first.Goroutines || u.last.Files > u.first.Files+2 {
				found = append(found, violation{Text: fmt.Sprintf("after Close, site %s has %d goroutines and %d files; before it opened the database it had %d and %d",
					u.site, u.last.Goroutines, u.last.Files, u.first.Goroutines, u.first.Files)})
			}
		}
	}
	return looked, found
}

func checkConnections(connections, sites int) []violation {
	if connections <= sites*poolSize {
		return nil
	}
	return []violation{{Text: fmt.Sprintf("the server has %d connections of %d sites, which may have %d each", connections, sites, poolSize)}}
}
