//go:build !linux

package pusher

import (
	"errors"
	"fmt"
	"net"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// ErrPlatform says that the daemon does not run on this operating system.
var ErrPlatform = fmt.Errorf("the site daemon runs on Linux only: %w", errors.ErrUnsupported)

// A Hook is a hook of git's, as the process at the other end of a connection.
type Hook struct {
	pid int
	UID uint32
}

func HookOf(*net.UnixConn) (Hook, error) { return Hook{}, ErrPlatform }
func BootID() (string, error)            { return "", ErrPlatform }

func (Hook) RunBy(Agent) error { return ErrPlatform }

func (Hook) Agent([]string, *wire.Process, string) (Agent, error) { return Agent{}, ErrPlatform }

func (Agent) Pushes() (bool, error)      { return false, ErrPlatform }
func (Agent) RenamesTo() (string, error) { return "", ErrPlatform }

func (Guard) Watch() (*Watched, error) { return nil, ErrPlatform }

func (Hook) Guard(string, string) (Guard, error) { return Guard{}, ErrPlatform }

// Watched is a process that is watched for its end.
type Watched struct{}

func Watch(Agent) (*Watched, error) { return nil, ErrPlatform }
func (*Watched) Wait() error        { return ErrPlatform }
func (*Watched) Close()             {}

func ThisProcess() (string, error) { return "", ErrPlatform }
func ProvenEnded(string) bool      { return false }
