package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// steps is how many steps a target has.
const steps = 5

// A Journal is a directory outside the database, with a file of each target: a line for each step that
// was done, and the token under which. It stands for what work changes in the world.
//
// It is fenced: it remembers the largest token of a target and refuses smaller ones. So a process
// that was frozen can't write after another one has.
type Journal string

// Step records the next step. It is a Step.
func (j Journal) Step(_ context.Context, c Claim) (Progress, error) {
	done, _ := strconv.Atoi(c.Frontier) // "" at first
	recorded, err := j.record(c.Name, done+1, c.Token)
	switch {
	case err != nil:
		return Progress{}, err
	case recorded != done+1:
		// That is a verdict about the target: trying again would not help.
		return Progress{Parked, fmt.Sprintf("the journal is at step %d, the checkpoint at %d", recorded, done)}, nil
	case done+1 == steps:
		return Progress{State: Done}, nil
	default:
		return Progress{Active, strconv.Itoa(done + 1)}, nil
	}
}

// record appends a step that follows the last one, makes it durable, and returns the last step that
// the journal then has. A step that it has changes nothing. The error wraps refdb.ErrLockLost if the
// journal has seen a larger token.
func (j Journal) record(name string, step int, token refdb.Token) (last int, err error) {
	f, err := os.OpenFile(filepath.Join(string(j), url.PathEscape(name)), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// Looking at the last token and writing are one act: others wait until the file is closed.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	var seen refdb.Token
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "%d %d\n", &last, &seen); err != nil {
			return 0, fmt.Errorf("reading a journal: %w", err)
		}
	}
	switch {
	case token < seen:
		return last, fmt.Errorf("%w: the journal has seen a later holder", refdb.ErrLockLost)
	case step != last+1:
		return last, nil
	}
	if _, err := fmt.Fprintf(f, "%d %d\n", step, token); err != nil {
		return last, err
	}
	return step, f.Sync()
}
