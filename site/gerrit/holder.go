package gerrit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Holder is a process that has the indexes of a site directory open for writing: its Gerrit, or one of Gerrit's offline programs.
type Holder struct {
	PID int // 0 if it can't be seen from here
}

// HolderOf returns the process that has the indexes of a site directory open for writing. Lucene locks the file write.lock of each index
// for as long; the file itself stays.
func HolderOf(path string) (h Holder, held bool, err error) {
	var files []string
	// The index of changes consists of two.
	for _, pattern := range []string{"index/*/write.lock", "index/*/*/write.lock"} {
		some, err := filepath.Glob(filepath.Join(path, pattern))
		if err != nil {
			return Holder{}, false, err
		}
		files = append(files, some...)
	}
	for _, file := range files {
		pid, locked, err := lockedBy(file)
		if err != nil {
			return Holder{}, false, fmt.Errorf("finding the process that has Gerrit's indexes open: %w", err)
		}
		if locked {
			return Holder{PID: max(pid, 0)}, true, nil
		}
	}
	return Holder{}, false, nil
}

// lockedBy returns the process that holds a record lock on the file.
func lockedBy(path string) (pid int, locked bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil {
		return 0, false, fmt.Errorf("%s: %w", path, err)
	}
	return int(lock.Pid), lock.Type != syscall.F_UNLCK, nil
}

// Offline reports whether the process is known to be one of Gerrit's offline programs that write indexes. They need no session until they
// move a ref, which is refused without one.
func (h Holder) Offline() bool {
	if h.PID == 0 {
		return false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(h.PID), "cmdline"))
	if err != nil {
		return false
	}
	// java OPTION... -jar WAR PROGRAM ARGUMENT...
	args := bytes.Split(text, []byte{0})
	for i, arg := range args {
		if string(arg) == "-jar" && i+2 < len(args) {
			switch string(args[i+2]) {
			case "init", "reindex":
				return true
			}
		}
	}
	return false
}

// Started returns when the process started, or up to a second before.
func (h Holder) Started() (time.Time, error) {
	const ticks = 100 // a second: USER_HZ
	process, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(h.PID), "stat"))
	if err != nil {
		return time.Time{}, err
	}
	system, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	// The name of the program, the second field, may hold spaces and parentheses.
	fields := bytes.Fields(process[bytes.LastIndexByte(process, ')')+1:])
	_, boot, ok := bytes.Cut(system, []byte("\nbtime "))
	if !ok || len(fields) < 20 {
		return time.Time{}, errors.New("/proc does not say when processes start")
	}
	boot, _, _ = bytes.Cut(boot, []byte("\n"))
	booted, err1 := strconv.ParseInt(string(boot), 10, 64)
	after, err2 := strconv.ParseInt(string(fields[19]), 10, 64)
	return time.Unix(booted, 0).Add(time.Duration(after) * (time.Second / ticks)), errors.Join(err1, err2)
}

// Listens reports whether the process accepts TCP connections, as a Gerrit does once it has started.
// If that can't be determined, it reports true.
func (h Holder) Listens() bool {
	return listens(filepath.Join("/proc", strconv.Itoa(h.PID)))
}

// listens reports whether the process with this directory in /proc accepts TCP connections.
func listens(proc string) bool {
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return true
	}
	listening, err := listeningSockets(proc)
	if err != nil {
		return true
	}
	for _, fd := range fds {
		link, err := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		// Links of a process with capabilities that this one lacks can't be read.
		if err != nil && !errors.Is(err, fs.ErrNotExist) || listening[link] {
			return true
		}
	}
	return false
}

// listeningSockets returns the listening TCP sockets in the network namespace of a process, named
// as the links in its directory fd.
func listeningSockets(proc string) (map[string]bool, error) {
	const listening = "0A" // TCP_LISTEN
	found := map[string]bool{}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, table))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			// sl local_address rem_address st queues tr uid timeout inode ...
			if f := strings.Fields(line); len(f) > 9 && f[3] == listening {
				found["socket:["+f[9]+"]"] = true
			}
		}
	}
	return found, nil
}
