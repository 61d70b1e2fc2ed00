package filesystem

import "golang.org/x/sys/unix"

// Birth returns the time of a file's creation, in nanoseconds, which distinguishes it from an
// earlier file with the same inode number. It is 0 if the file system does not provide it.
func Birth(path string) int64 {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &s); err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return s.Btime.Sec*1_000_000_000 + int64(s.Btime.Nsec)
}
