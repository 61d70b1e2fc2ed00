//go:build !linux

package site

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

var errPlatform = fmt.Errorf("the site daemon runs on Linux only: %w", errors.ErrUnsupported)

type peer struct {
	pid int
	uid uint32
}

func peerOf(*net.UnixConn) (peer, error)     { return peer{}, errPlatform }
func bootID() (string, error)                { return "", errPlatform }
func lockState(string) (*os.File, error)     { return nil, errPlatform }
func bind(string) (*net.UnixListener, error) { return nil, errPlatform }

func (peer) stillOf(agent) error { return errPlatform }

func (peer) pusher(*Config, *wire.Process, string) (agent, error) { return agent{}, errPlatform }

type process struct{}

func watch(agent) (*process, error) { return nil, errPlatform }
func (*process) wait() error        { return errPlatform }
func (*process) ended() bool        { return false }
func (*process) close()             {}
