package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const never instant = math.MaxInt64

// A history is what the sites wrote into their journals.
type history struct {
	updates  map[string]*update
	holdings map[string]*holding
	reads    []read
	latest   map[string]instant // latest entry of each site process
	torn     int                // lines that were cut short by a kill
}

// An update moves refs, all or none.
type update struct {
	id             string
	moves          []move
	token          int64 // of the lock that fences it, or 0
	sent, answered instant
	outcome        string // unknown, too, if its site was killed before it had the answer
	mismatch       bool
	err            string
}

// A holding is one critical section under one acquisition of a lock.
type holding struct {
	id      string
	refs    []string
	token   int64
	asked   instant // for the lock
	entered instant // the section: the lock was held then
	held    instant // the last time at which the lock was known to be held
	left    bool    // the holder was about to release the lock, and still held it
	noticed instant // when the holder was told of its loss, or 0
}

// A read is a value of a ref that a call returned.
type read struct {
	ref, value string
	from, to   instant // of the call
}

// siteOf returns the name of the process that wrote an entry of that ID.
func siteOf(id string) string {
	return id[:max(0, strings.LastIndexByte(id, '-'))]
}

func newHistory() *history {
	return &history{updates: make(map[string]*update), holdings: make(map[string]*holding), latest: make(map[string]instant)}
}

// readHistory reads all journals of a directory.
func readHistory(dir string) (*history, error) {
	h := newHistory()
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, path := range paths {
		read, torn, err := readJournal(path)
		if err != nil {
			return nil, err
		}
		entries = append(entries, read...)
		h.torn += torn
	}
	return h, h.addAll(entries)
}

// addAll adds entries of several journals, in any order.
func (h *history) addAll(entries []entry) error {
	for _, e := range entries {
		if e.Kind == asked || e.Kind == entered {
			h.begin(e)
		}
	}
	for _, e := range entries {
		if err := h.add(e); err != nil {
			return err
		}
	}
	return nil
}

func readJournal(path string) (entries []entry, torn int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var e entry
		if json.Unmarshal(line, &e) != nil {
			torn++
			continue
		}
		entries = append(entries, e)
	}
	return entries, torn, lines.Err()
}

// begin adds updates and holdings, which later entries refer to.
func (h *history) begin(e entry) {
	if e.Kind == asked {
		h.updates[e.ID] = &update{id: e.ID, moves: e.Moves, token: e.Token, sent: e.T, answered: never, outcome: unknown}
		return
	}
	h.holdings[e.ID] = &holding{id: e.ID, refs: e.Refs, token: e.Token, asked: e.From, entered: e.T, held: e.T}
}

// add adds what became of them, and reads.
func (h *history) add(e entry) error {
	if e.ID != "" {
		h.latest[siteOf(e.ID)] = max(h.latest[siteOf(e.ID)], e.T)
	}
	switch e.Kind {
	case answered:
		u, ok := h.updates[e.ID]
		if !ok {
			return fmt.Errorf("the journals know of the answer to update %s, and not of the update", e.ID)
		}
		u.outcome, u.mismatch, u.err = e.Outcome, e.Mismatch, e.Error
		if e.Outcome != unknown {
			u.answered = e.T
		}
	case got:
		h.reads = append(h.reads, read{ref: e.Refs[0], value: e.Value, from: e.From, to: e.T})
	case held, left:
		if s, ok := h.holdings[e.ID]; ok {
			s.held = max(s.held, e.T)
			s.left = s.left || e.Kind == left
		} else {
			return fmt.Errorf("the journals know of the section %s, and not of its beginning", e.ID)
		}
	case noticed:
		// A lock that was lost before its section began has no holding.
		if s, ok := h.holdings[e.ID]; ok {
			s.noticed = e.T
		}
	}
	return nil
}

// byRef returns the holdings of each ref, in the order of their beginning.
func (h *history) byRef() map[string][]*holding {
	refs := make(map[string][]*holding)
	for _, s := range h.holdings {
		for _, ref := range s.refs {
			refs[ref] = append(refs[ref], s)
		}
	}
	for _, holdings := range refs {
		slices.SortFunc(holdings, func(a, b *holding) int {
			return int(a.entered - b.entered)
		})
	}
	return refs
}
