package pusher

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Hook is the hook process at the other end of a connection.
type Hook struct {
	pid int
	UID uint32
}

// HookOf asks the kernel who connected.
func HookOf(conn *net.UnixConn) (Hook, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Hook{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Hook{}, err
	}
	if credErr != nil {
		return Hook{}, fmt.Errorf("reading the peer's credentials: %w", credErr)
	}
	return Hook{pid: int(cred.Pid), UID: cred.Uid}, nil
}

// BootID changes whenever the machine starts.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("finding the ID of this boot: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// stat is what /proc says of a process.
type stat struct {
	dead          bool // it has ended, and its parent has not noticed
	parent, group int
	start         string
}

// statOf reads /proc/PID/stat. The name in it may hold spaces and parentheses.
func statOf(pid int) (stat, error) {
	// Every push reads this several times: package os and its poller would cost more than the read.
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
	return stat{dead: fields[0][0] == 'Z', parent: parent, group: group, start: string(fields[19])}, errors.Join(err1, err2)
}

// innermostID returns the ID that a process has in its own PID namespace, which is this one or one below it.
func innermostID(pid int) (int, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if ids, found := bytes.CutPrefix(line, []byte("NSpid:")); found {
			fields := bytes.Fields(ids)
			if len(fields) == 0 {
				break
			}
			return strconv.Atoi(string(fields[len(fields)-1]))
		}
	}
	return 0, errors.New("/proc: a status without the IDs in PID namespaces")
}

// RunBy returns an error unless a is still the hook's parent. If a was watched before the call,
// success also shows that the watched process is a, and no other one that got its ID.
func (p Hook) RunBy(a Agent) error {
	if hook, err := statOf(p.pid); err != nil || hook.parent != a.PID {
		return ErrGone
	}
	return nil
}

// A Watched is a process whose end can be waited for.
type Watched struct {
	file *os.File // a pidfd
}

// Watch opens the process of a. The error is [ErrGone] if it has ended.
func Watch(a Agent) (*Watched, error) {
	fd, err := unix.PidfdOpen(a.PID, unix.PIDFD_NONBLOCK)
	if isNoProcess(err) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("watching process %d: %w", a.PID, err)
	}
	p := &Watched{os.NewFile(uintptr(fd), "pidfd")}
	// The pidfd may be of another process, which got the ID since.
	s, err := statOf(a.PID)
	switch {
	case err == nil && s.start == a.start && !p.ended():
		return p, nil
	case err != nil && !isGone(err): // such as for want of descriptors
		err = fmt.Errorf("inspecting process %d: %w", a.PID, err)
	default:
		err = ErrGone
	}
	p.Close()
	return nil, err
}

// isNoProcess reports whether an error of pidfd_open says that no process has the ID: nobody has it (ESRCH), or a thread of some
// process that is not its first (EINVAL; on later kernels, such as 6.18, ENOENT).
func isNoProcess(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
}

// isGone reports whether err says that /proc has no such process.
func isGone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

// Wait returns nil when the process has ended, and an error once p is closed.
func (p *Watched) Wait() error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(ended)
}

func (p *Watched) ended() bool {
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

// Close ends Wait.
func (p *Watched) Close() { p.file.Close() }
