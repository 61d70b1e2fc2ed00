//go:build !linux

package presence

import (
	"os"

	"github.com/globalrefdb/globalrefdb/site/pusher"
)

func LockState(string) (*os.File, error) { return nil, pusher.ErrPlatform }
