// Package jobcontrol runs a command while a lock is held, and stops it when the lock is lost. As a
// shell does with a job, it gives the command the terminal, forwards signals to it, and
// stops and continues it together with this program.
package jobcontrol

import "syscall"

// Exit is how a command ended: with an exit code, or by a signal.
type Exit struct {
	Code   int
	Signal syscall.Signal // 0: none
}
