package main

import "fmt"

const (
	leakCheck       = "no goroutine or file leaks"
	connectionCheck = "no connection leaks"

	// spare is by how many goroutines and files a paused site may use more than
	// the first time: those of connections, of which its pool keeps more or fewer.
	spare = 20
	// poolSize is how many connections a site has at most: it opens the database
	// twice, for 16 connections each, one that listens, and two spare ones.
	poolSize = 2 * 19
)

// A usage is what one start of a site said of itself.
type usage struct {
	site  string
	first report   // before it opened the database
	quiet []report // whenever it was paused
	last  report
}

func (s *siteProcess) usage() usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return usage{s.name, s.first, s.quiet, s.latest}
}

// checkLeaks finds sites that use more, whenever they are paused, than the
// first time, or that leave something behind after they closed the database.
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
