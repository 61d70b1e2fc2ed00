package main

import (
	"fmt"
	"slices"
	"time"
)

// A violation is a promise that did not hold.
type violation struct {
	Check    string   `json:"check"`
	Text     string   `json:"text"`
	Evidence []string `json:"evidence,omitempty"`
}

// A span is a stretch of time.
type span struct {
	from, to instant
}

func (s span) overlaps(from, to instant) bool { return s.from <= to && from <= s.to }

// Disturbances are what the checks have to know about the faults.
type disturbances struct {
	forward  []span            // steps of the database's clock into the future, which void P4
	dataLost []span            // while all of the database's data was lost, which voids P4, too
	frozen   map[string][]span // by site process
}

// voidsP4 reports whether something happened in that time after which a holder
// may learn of its loss too late: when another has its lock already.
func (d *disturbances) voidsP4(from, to instant) bool {
	return slices.ContainsFunc(d.forward, func(s span) bool { return s.overlaps(from, to) }) || d.losesData(from, to)
}

func (d *disturbances) losesData(from, to instant) bool {
	return slices.ContainsFunc(d.dataLost, func(s span) bool { return s.overlaps(from, to) })
}

// wasFrozen reports whether the site process was frozen in that time, or less
// than a second before it: a thawed process has to catch up.
func (d *disturbances) wasFrozen(site string, from, to instant) bool {
	return slices.ContainsFunc(d.frozen[site], func(s span) bool {
		return s.overlaps(from.add(-time.Second), to)
	})
}

// A checkInput is all that the checks of a history look at.
type checkInput struct {
	*history
	disturbances
	final map[string]string // what each ref holds in the database
}

// A check looks for violations of one promise, and returns how many things it looked at.
type check struct {
	name string
	do   func(*checkInput) (looked int, found []violation)
}

// checks are the checks of a history. Others look at the processes.
var checks = []check{
	{"one holder per ref", checkHolders},
	{"tokens grow", checkTokens},
	{"loss known before takeover", checkLoss},
	{"no acknowledged update lost, no refused one visible", checkChains},
	{"updates and reads in real-time order", checkOrder},
	{"updates of several refs are whole", checkWhole},
	{"fenced writers never overlap", checkFences},
	{"a fresh lock keeps others' updates out", checkMandatory},
}

func (h *holding) String() string {
	noticed := ""
	if h.noticed != 0 {
		noticed = fmt.Sprintf(", noticed its loss at %d", h.noticed)
	}
	return fmt.Sprintf("section %s on %v, token %d: asked at %d, entered at %d, held until %d%s",
		h.id, h.refs, h.token, h.asked, h.entered, h.held, noticed)
}

func (u *update) String() string {
	answer := "no answer"
	if u.answered != never {
		answer = fmt.Sprintf("answered at %d", u.answered)
	}
	return fmt.Sprintf("update %s of %v, token %d: sent at %d, %s, %s %s", u.id, u.moves, u.token, u.sent, answer, u.outcome, u.err)
}
