// Package filesystem reads what the operating system knows about files and disks. Each system
// provides it in a different way, and some don't provide all of it.
package filesystem

// A Disk is the file system that a directory is on.
type Disk struct {
	Network string // the kind of the file system, if other machines have access to it; otherwise ""
	Free    uint64 // bytes
}
