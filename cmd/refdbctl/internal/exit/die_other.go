//go:build !linux

package exit

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// dieWait is how long the kernel may take to deliver a signal to this process. Only a signal that does not
// end the program takes so long.
const dieWait = 10 * time.Second

// DieBySignal ends this program by a signal, as a shell that runs it expects. It
// returns if the signal does not end the program, or has another effect in Go.
func DieBySignal(s syscall.Signal) {
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
