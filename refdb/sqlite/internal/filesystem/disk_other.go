//go:build !linux

package filesystem

// DiskOf reports false: each system provides the disk in a different way.
func DiskOf(string) (Disk, bool) { return Disk{}, false }
