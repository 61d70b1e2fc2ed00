//go:build !unix

package main

import (
	"errors"
	"io"
	"os"
	"time"
)

var passedOn = []os.Signal{os.Interrupt}

type guarded struct {
	command   []string
	env       []string
	in        io.Reader
	out, err  io.Writer
	killAfter time.Duration
	signals   <-chan os.Signal
	lost      <-chan struct{}
	stands    func() bool
}

// run refuses: without process groups a command can't be stopped with all that it started.
func (g *guarded) run() (ended, err error) {
	return nil, errors.New("running a command under a lock is not supported on this system")
}

func (g *guarded) tellJob() {}
