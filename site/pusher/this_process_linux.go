package pusher

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pidNamespace returns the ID of the PID namespace in which this process runs. The kernel
// gives the ID to another namespace only after all processes of this one have ended.
func pidNamespace() (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &s); err != nil {
		return 0, fmt.Errorf("finding the PID namespace: %w", err)
	}
	return s.Ino, nil
}

// ThisProcess returns the name of this process, for [ProvenEnded].
func ThisProcess() (string, error) {
	boot, err := BootID()
	if err != nil {
		return "", err
	}
	namespace, err := pidNamespace()
	if err != nil {
		return "", err
	}
	s, err := statOf(os.Getpid())
	if err != nil {
		return "", fmt.Errorf("inspecting this process: %w", err)
	}
	return processName(Agent{boot, os.Getpid(), s.start}, namespace), nil
}

// ProvenEnded reports whether the process of that name is proven to have ended: it ran in this
// boot of this machine and in this PID namespace, and no thread of it is left. It reports
// false for processes of other machines, boots and namespaces: nothing is known of them.
func ProvenEnded(name string) bool {
	a, namespace, ok := parseProcessName(name)
	if !ok {
		return false
	}
	boot, err := BootID()
	if err != nil || a.Boot != boot {
		return false
	}
	if here, err := pidNamespace(); err != nil || here != namespace {
		return false
	}
	// If /proc is another namespace's, it tells nothing about ours.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return false
	}
	fd, err := unix.PidfdOpen(a.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return isNoProcess(err)
	}
	defer unix.Close(fd)
	if ended(uintptr(fd)) {
		return true
	}
	// The ID may be another process's by now. If /proc hides the process, that proves nothing.
	s, err := statOf(a.PID)
	return err == nil && s.start != a.start
}
