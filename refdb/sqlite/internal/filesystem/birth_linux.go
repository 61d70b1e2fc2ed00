package filesystem

import "golang.org/x/sys/unix"

// Birth returns when a file was made, in nanoseconds: that tells it from one whose number it got.
// It is 0 where the file system does not say so.
func Birth(path string) int64 {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &s); err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return s.Btime.Sec*1_000_000_000 + int64(s.Btime.Nsec)
}
