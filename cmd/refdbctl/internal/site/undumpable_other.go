//go:build !linux

package site

// makeUndumpable can't do anything here, where no daemon runs.
func makeUndumpable() error { return nil }
