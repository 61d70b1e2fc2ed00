// Package filesystem tells what the operating system knows of files and disks. Each system has
// its own way, and some have none.
package filesystem

// A Disk is the file system that a directory is on.
type Disk struct {
	Network string // its kind, if other machines have access to it; otherwise ""
	Free    uint64 // bytes
}
