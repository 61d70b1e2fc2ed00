//go:build !linux

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// dieWait is how long the kernel may take to deliver a signal to ourselves.
const dieWait = time.Second

// dieOf ends the program by a signal, as a shell that runs it expects. It
// returns if that can't be done, or if Go gives the signal another effect.
func dieOf(s syscall.Signal) {
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL:
	default:
		return
	}
	signal.Reset(s)
	self, err := os.FindProcess(os.Getpid())
	if err == nil && self.Signal(s) == nil {
		time.Sleep(dieWait)
	}
}
