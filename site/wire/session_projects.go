package wire

import (
	"strings"
	"time"
)

// ProjectsVersion is the version of the messages about projects, which a daemon announces in its
// [Welcome].
const ProjectsVersion = 1

type (
	// Create asks for permission to create a repository. It is answered by [Granted] or [Refused],
	// and its [Report] by [Settled].
	Create struct {
		TX    string
		Limit time.Duration // how long the guard waits for the answer; whole milliseconds
		Dir   string        // the real path that the repository will have
	}
	// Deleted reports that the guard has deleted a repository. It is answered by [Granted] or
	// [Refused], without a [Report].
	Deleted struct {
		TX    string
		Limit time.Duration // how long the guard waits for the answer; whole milliseconds
		Dir   string        // the real path that the repository had
		ID    string        // of the project that it was a copy of
	}
)

func (m Create) check() error { return checkProject(m.TX, m.Limit, m.Dir) }

func (m Deleted) check() error {
	if !isText(m.ID) {
		return malformed("id " + excerpt(m.ID))
	}
	return checkProject(m.TX, m.Limit, m.Dir)
}

func checkProject(tx string, limit time.Duration, dir string) error {
	switch {
	case limit < 0:
		return malformed("a limit of " + milliseconds(limit) + " ms")
	case !isPath(dir):
		return malformed("directory " + excerpt(dir) + ": an absolute path without line breaks is needed")
	}
	return checkTX(tx)
}

func parseCreate(fields string, lines []string) (m Create, ok bool) {
	m.TX, m.Limit, m.Dir, ok = parseProject(fields)
	return m, ok && len(lines) == 0
}

func parseDeleted(fields string, lines []string) (m Deleted, ok bool) {
	if m.TX, m.Limit, m.Dir, ok = parseProject(fields); !ok || len(lines) != 1 {
		return m, false
	}
	m.ID, ok = strings.CutPrefix(lines[0], "id ")
	return m, ok
}

// parseProject reads TX MS DIR.
func parseProject(fields string) (tx string, limit time.Duration, dir string, ok bool) {
	tx, fields, _ = strings.Cut(fields, " ")
	ms, dir, _ := strings.Cut(fields, " ")
	limit, ok = parseMilliseconds(ms)
	return tx, limit, dir, ok
}
