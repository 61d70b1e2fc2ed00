//go:build !linux

package filesystem

// DiskOf reports false: every system has another way to tell.
func DiskOf(string) (Disk, bool) { return Disk{}, false }
