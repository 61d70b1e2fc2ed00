package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// A summary adds a run up.
type summary struct {
	faults []*faultTally
	checks []*checkTally
	loads  []load
}

type faultTally struct {
	database, name string
	times          int
	worst          time.Duration // recovery
	never          int           // how often there was none
}

type checkTally struct {
	database, name string
	looked         int // things, at most in one go
	violations     int
}

// recovery is the longest, in words.
func (f *faultTally) recovery() string {
	worst := fmt.Sprintf("%.1f s", f.worst.Seconds())
	if f.never > 0 {
		worst = fmt.Sprintf("%d times not within %s, else %s", f.never, recoveryLimit, worst)
	}
	return worst
}

// A load is what the sites did on one database.
type load struct {
	database string
	ops      int
	lasted   time.Duration
}

func (s *summary) fault(database, name string) *faultTally {
	for _, f := range s.faults {
		if f.database == database && f.name == name {
			return f
		}
	}
	f := &faultTally{database: database, name: name}
	s.faults = append(s.faults, f)
	return f
}

func (s *summary) check(database, name string) *checkTally {
	for _, c := range s.checks {
		if c.database == database && c.name == name {
			return c
		}
	}
	c := &checkTally{database: database, name: name}
	s.checks = append(s.checks, c)
	return c
}

// violations counts them.
func (s *summary) violations() (n int) {
	for _, c := range s.checks {
		n += c.violations
	}
	return n
}

// print writes the tables.
func (s *summary) print(to io.Writer, seed uint64) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nDATABASE\tFAULT\tINJECTED\tWORST RECOVERY\n")
	for _, f := range s.faults {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", f.database, f.name, f.times, f.recovery())
	}
	fmt.Fprintf(w, "\nDATABASE\tCHECK\tLOOKED AT\tVIOLATIONS\n")
	for _, c := range s.checks {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", c.database, c.name, c.looked, c.violations)
	}
	fmt.Fprintf(w, "\nDATABASE\tOPERATIONS\tTIME\n")
	for _, l := range s.loads {
		fmt.Fprintf(w, "%s\t%d\t%s\n", l.database, l.ops, l.lasted.Round(time.Second))
	}
	fmt.Fprintf(w, "\nseed %d: %d violations\n", seed, s.violations())
	return w.Flush()
}
