//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// childArgument makes the test binary a command to be run under a lock. A shell won't
// do: one that has just forked may miss a signal, or can't be stopped.
const childArgument = "run-as-child"

// childMain is such a command. It prints its process ID, then what happens to
// it, and returns its status.
func childMain(role string) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	switch role {
	case "listener": // tells of signals, and ends with SIGUSR2
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
	case "stubborn": // does not, and neither does its child
		leaf := exec.Command(os.Args[0], childArgument, "leaf")
		leaf.Stdout = os.Stdout
		if err := leaf.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		leaf.Wait()
	case "leaf":
		fmt.Println(syscall.Getpgrp())
		for range signals {
		}
	}
	return 1
}
