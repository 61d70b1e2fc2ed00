//go:build !unix

package jobcontrol

import (
	"errors"
	"io"
	"os"
	"time"
)

// ForwardedSignals returns the signals that would be forwarded to a command.
func ForwardedSignals() []os.Signal { return []os.Signal{os.Interrupt} }

// A Command can't run on this system.
type Command struct {
	Args      []string
	Env       []string
	In        io.Reader
	Out, Err  io.Writer
	KillAfter time.Duration
	Signals   <-chan os.Signal
	LockLost  <-chan struct{}
	LockHeld  func() bool
}

// Run refuses: without process groups a command can't be stopped with all that it started.
func (c *Command) Run() (Exit, error) {
	return Exit{}, errors.New("running a command under a lock is not supported on this system")
}

// SignalCaller does nothing: no command ran.
func (c *Command) SignalCaller() {}
