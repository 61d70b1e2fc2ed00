package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

// An event is a line of the run's record.
type event struct {
	At        float64    `json:"at"` // seconds since the start
	Database  string     `json:"db,omitempty"`
	Event     string     `json:"event"`
	Fault     string     `json:"fault,omitempty"`
	Detail    string     `json:"detail,omitempty"`
	Seconds   float64    `json:"seconds,omitempty"`
	Before    float64    `json:"ops_per_s_before,omitempty"`
	Violation *violation `json:"violation,omitempty"`
}

// A record tells what happened: line by line for a machine, summed up for a person.
type record struct {
	mu    sync.Mutex
	out   io.Writer
	began instant
	err   error
	sum   summary
	known map[string]bool // violations that were written, by database, check and subject
}

func newRecord(out io.Writer) *record {
	return &record{out: out, began: now(), known: make(map[string]bool)}
}

// emit writes an event.
func (r *record) emit(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(e)
}

func (r *record) write(e event) {
	e.At = now().sub(r.began).Round(time.Millisecond).Seconds()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = fmt.Fprintf(r.out, "%s\n", line)
	}
	if r.err == nil {
		r.err = err
	}
}

// fault notes that a fault ended, and how long the sites took to recover, if they did.
func (r *record) fault(database, name string, took time.Duration, recovered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.sum.fault(database, name)
	f.times++
	if recovered {
		f.worst = max(f.worst, took)
		r.write(event{Database: database, Event: "recovered", Fault: name, Seconds: took.Seconds()})
	} else {
		f.never++
	}
}

// checked writes what a check found, unless it was found before.
func (r *record) checked(database, name string, looked int, found []violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.sum.check(database, name)
	c.looked = max(c.looked, looked)
	for _, v := range found {
		v.Check = name
		key := fmt.Sprint(database, v.Check, v.Text, v.Evidence[:min(1, len(v.Evidence))])
		if r.known[key] {
			continue
		}
		r.known[key] = true
		c.violations++
		r.write(event{Database: database, Event: "violation", Violation: &v})
	}
}

// done adds operations.
func (r *record) done(database string, ops int, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.loads = append(r.sum.loads, load{database, ops, d})
}

// A summary is what a run prints in the end.
type summary struct {
	faults []*faultTally
	checks []*checkTally
	loads  []load
}

type faultTally struct {
	database, name string
	times          int
	worst          time.Duration // recovery
	never          int           // how often there was no recovery in time
}

type checkTally struct {
	database, name string
	looked         int // things, at most in one check
	violations     int
}

// recovery returns the longest recovery, in words.
func (f *faultTally) recovery() string {
	worst := fmt.Sprintf("%.1f s", f.worst.Seconds())
	if f.never > 0 {
		worst = fmt.Sprintf("%d times not within %s, else %s", f.never, recoveryLimit, worst)
	}
	return worst
}

// A load is the work of the sites on one database.
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

// violations returns how many there were.
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
