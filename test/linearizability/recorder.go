package linearizability

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// A Recorder writes calls and returns as they happen. Its methods may be called
// concurrently.
type Recorder struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewRecorder returns a Recorder that appends to w, one Write per line. Every
// process needs a file of its own: one that is killed may leave half a line.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{w: w} }

// Err returns the first error of writing. The record is useless then: calls that
// are missing look as if they had never happened.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// ClockStepped records that somebody is about to set the database's clock. From then
// on the check does not judge which locks are stale.
func (r *Recorder) ClockStepped() {
	now := clock()
	r.write(line{Time: now, Input: &Input{Kind: Step}})
	r.write(line{Time: now, Output: &Output{Result: Done}})
}

// A line is a call or a return.
type line struct {
	Time   int64   `json:"t"`
	Owner  string  `json:"owner,omitempty"`
	ID     int     `json:"id"`
	Input  *Input  `json:"call,omitempty"`
	Output *Output `json:"return,omitempty"`
}

func (r *Recorder) write(l line) {
	text, err := json.Marshal(l)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.w.Write(append(text, '\n'))
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("record: %w", err)
	}
}

// clock returns the time since the machine started. It is the same for all
// processes, and nobody sets it.
func clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // this system has no such clock
	}
	return t.Nano()
}
