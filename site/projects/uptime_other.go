//go:build !linux

package projects

import (
	"errors"
	"time"
)

func Uptime() (time.Duration, error) { return 0, errors.ErrUnsupported }
