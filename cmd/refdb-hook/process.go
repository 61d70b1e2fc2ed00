package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// self identifies this hook and the process that started it. If that process ends, the hook gets
// another parent, which has nothing to do with the push.
func self() wire.Process {
	p := wire.Process{PID: os.Getpid(), Parent: os.Getppid()}
	p.ParentStart = startOf(p.Parent)
	return p
}

// startOf returns when a process started, which tells it from others that get its ID; "-" if there is none.
func startOf(pid int) string {
	// Without package os and its poller, as in a connection.
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "-"
	}
	defer syscall.Close(fd)
	var b [1024]byte // more than the fields can have
	n, _ := syscall.Read(fd, b[:])
	text := b[:max(n, 0)]
	// The name, which is the second field, may hold spaces and parentheses.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return "-"
	}
	return string(fields[19])
}
