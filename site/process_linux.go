package site

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A peer is the hook at the other end of a connection.
type peer struct {
	pid int
	uid uint32
}

func peerOf(conn *net.UnixConn) (peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, fmt.Errorf("asking who connected: %w", credErr)
	}
	return peer{pid: int(cred.Pid), uid: cred.Uid}, nil
}

// bootID changes whenever the machine starts.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("finding the ID of this boot: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// stat is what /proc says of a process.
type stat struct {
	parent, group int
	start         string
}

// statOf reads /proc/PID/stat. The name in it may hold spaces and parentheses.
func statOf(pid int) (stat, error) {
	// As this is asked several times per push, it goes without package os and its poller.
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat{}, err
	}
	defer unix.Close(fd)
	var b [1024]byte // more than the fields can have
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return stat{}, err
	}
	return parseStat(b[:n])
}

func parseStat(b []byte) (stat, error) {
	// Fields 1 and 2 are the ID and the name; state is the third.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc: a stat of %d fields", len(fields))
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return stat{parent: parent, group: group, start: string(fields[19])}, errors.Join(err1, err2)
}

// stillOf makes sure that a, which is watched by now, runs the hook still: then
// it is a that is watched, and no other that got its ID.
func (p peer) stillOf(a agent) error {
	if hook, err := statOf(p.pid); err != nil || hook.parent != a.pid {
		return errOrphan
	}
	return nil
}

// A process is watched for its end.
type process struct {
	file *os.File // a pidfd
}

// watch opens the process of a. The error is errOrphan if it has ended.
func watch(a agent) (*process, error) {
	fd, err := unix.PidfdOpen(a.pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, errOrphan
	}
	if err != nil {
		return nil, fmt.Errorf("watching process %d: %w", a.pid, err)
	}
	p := &process{os.NewFile(uintptr(fd), "pidfd")}
	// What was opened may be another, that got the ID since.
	s, err := statOf(a.pid)
	switch {
	case err == nil && s.start == a.start && !p.ended():
		return p, nil
	case err != nil && !isGone(err): // such as for want of descriptors
		err = fmt.Errorf("looking at process %d: %w", a.pid, err)
	default:
		err = errOrphan
	}
	p.close()
	return nil, err
}

// isGone reports whether that is why /proc says nothing of a process.
func isGone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

// wait returns when the process has ended, or an error once it is closed.
func (p *process) wait() error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(ended)
}

func (p *process) ended() bool {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return false
	}
	var is bool
	raw.Control(func(fd uintptr) { is = ended(fd) })
	return is
}

// ended asks a pidfd: it is readable once the last thread is gone.
func ended(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return err == nil && n > 0 && fds[0].Revents&unix.POLLIN != 0
		}
	}
}

func (p *process) close() { p.file.Close() }
