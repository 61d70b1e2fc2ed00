//go:build !linux

package site

// makeUndumpable does nothing: no daemon runs on this system.
func makeUndumpable() error { return nil }
