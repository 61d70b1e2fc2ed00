package main

import (
	"encoding/json"
	"os"
	"sync"
)

// The kinds of a journal's lines.
const (
	asked    = "asked"    // an update is about to be sent
	answered = "answered" // what became of it
	got      = "got"      // a call from From to T returned a value of a ref
	entered  = "entered"  // a critical section: the lock was held at T
	held     = "held"     // the lock was still held at T
	left     = "left"     // the holder is about to release it
	noticed  = "noticed"  // the holder was told at T that the lock is lost
)

// What became of an update.
const (
	accepted = "accepted"
	refused  = "refused" // it certainly did nothing
	unknown  = "unknown"
)

// An entry is a line of a journal.
type entry struct {
	Kind    string   `json:"k"`
	T       instant  `json:"t"`
	From    instant  `json:"from,omitempty"`
	ID      string   `json:"id,omitempty"` // of the update or the holding
	Refs    []string `json:"refs,omitempty"`
	Moves   []move   `json:"moves,omitempty"`
	Value   string   `json:"value,omitempty"`
	Token   int64    `json:"token,omitempty"`   // of the holding, or the fence of the update
	Outcome string   `json:"outcome,omitempty"` // accepted, refused or unknown
	Error   string   `json:"error,omitempty"`
	// Mismatch says that the update was refused because of what a ref holds.
	Mismatch bool `json:"mismatch,omitempty"`
}

// A move is one ref's part of an update.
type move struct {
	Ref string `json:"ref"`
	Old string `json:"old"`
	New string `json:"new"`
}

// A journal is a file to which several processes may append. Lines survive the
// process that wrote them.
type journal struct {
	mu   sync.Mutex
	file *os.File
	err  error // of the first write that failed
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	return &journal{file: f}, err
}

// write appends e at once. The line break comes first, so that a line which was
// cut short by a kill spoils no other.
func (j *journal) write(e entry) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append([]byte{'\n'}, line...))
	}
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.err == nil {
			j.err = err
		}
	}
}

// close closes the file and returns the first error of any write.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.Close(); j.err == nil {
		j.err = err
	}
	return j.err
}
