//go:build !linux

package site

// gitAt can't look at other processes here.
func gitAt(string) ([]gitProcess, bool) { return nil, true }

func (gitProcess) ended() bool { return false }
