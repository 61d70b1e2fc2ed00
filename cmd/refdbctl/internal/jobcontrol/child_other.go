//go:build unix && !linux

package jobcontrol

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// dieWithParent does nothing: this system can't kill a child when its parent dies.
func dieWithParent(*syscall.SysProcAttr) {}

// stopped returns false: on this system no call reports a stop without also reaping a child that
// has ended.
func stopped(int) bool { return false }

// stopWait is how long the kernel may take to stop this process, or to deliver SIGCONT once it runs
// again.
const stopWait = time.Second

// stopSelf stops this process until it is continued. The kernel ignores the signal if no process
// could continue this one; then stopSelf returns after stopWait.
func stopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	syscall.Kill(os.Getpid(), stopSignal)
	select {
	case <-continued:
	case <-time.After(stopWait):
	}
}
