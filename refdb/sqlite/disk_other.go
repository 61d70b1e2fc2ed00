//go:build !linux

package sqlite

// diskOf reports false: how to tell is different everywhere.
func diskOf(string) (disk, bool) { return disk{}, false }
