package filesystem

import "syscall"

// DiskOf returns the disk that a directory is on. It reports false if it can't determine the disk.
func DiskOf(dir string) (Disk, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return Disk{}, false
	}
	return Disk{Network: networkKind(uint32(s.Type)), Free: s.Bavail * uint64(s.Bsize)}, true
}

// networkKind returns the name of a network file system, or "". The numbers are those of statfs(2).
func networkKind(magic uint32) string {
	switch magic {
	case 0x6969:
		return "nfs"
	case 0x517b:
		return "smb"
	case 0xff534d42:
		return "cifs"
	case 0xfe534d42:
		return "smb2"
	case 0x01021997:
		return "9p"
	case 0x00c36400:
		return "ceph"
	case 0x5346414f:
		return "afs"
	case 0x73757245:
		return "coda"
	case 0x01161970:
		return "gfs2"
	case 0x7461636f:
		return "ocfs2"
	case 0x0bd00bd0:
		return "lustre"
	}
	return ""
}
