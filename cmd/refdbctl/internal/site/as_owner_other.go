//go:build !linux

package site

// AsOwner calls do: on this system a process can't switch its user temporarily.
func AsOwner(_ string, do func() error) error { return do() }
