//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/jobcontrol"
)

// childArgument makes the test binary a command to be run under a lock. A shell can't
// be used: one that has just forked may miss a signal, or can't be stopped.
const childArgument = "run-as-child"

// childMain is this command. It prints its process ID, then the signals that it gets, and
// returns its exit status.
func childMain(role string) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, jobcontrol.ForwardedSignals()...)
	switch role {
	case "listener": // prints signals, and ends with SIGUSR2
		fmt.Println(os.Getpid())
		for s := range signals {
			fmt.Println(s)
			if s == syscall.SIGUSR2 {
				return 9
			}
		}
	case "obedient": // ends with SIGTERM
		fmt.Println(os.Getpid())
		for s := range signals {
			fmt.Println(s)
			if s == syscall.SIGTERM {
				return 0
			}
		}
	}
	return 1
}
