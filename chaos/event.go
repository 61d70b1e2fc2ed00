package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
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

// A record is what happened, line by line for a machine and summed up for a person.
type record struct {
	mu    sync.Mutex
	out   io.Writer
	began instant
	err   error
	sum   summary
	known map[string]bool // violations told of, by database, check and what it is about
}

func newRecord(out io.Writer) *record {
	return &record{out: out, began: now(), known: make(map[string]bool)}
}

// tell writes an event.
func (r *record) tell(e event) {
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

// fault tells of the end of one, and how long the sites took to recover, if they did.
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

// checked tells what a check found. What it found before is not told again.
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
