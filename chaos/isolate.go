package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// isolatedVariable tells this program that it runs inside the namespaces.
const isolatedVariable = "CHAOS_ISOLATED"

// isolate runs this program once more, with the same arguments, as the first
// process of new process and mount namespaces. However that process ends, the kernel
// ends all servers and sites with it, frozen ones too, and unmounts what was mounted.
func isolate() (status int, err error) {
	if os.Getuid() != 0 {
		return 0, errors.New("run it as root: it mounts a small disk for SQLite, and freezes and kills what it started in a namespace of its own")
	}
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolatedVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
		Setpgid:      true, // this process passes signals on
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start in new namespaces: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err = <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.Exited() {
				return exit.ExitCode(), nil
			}
			return 0, err
		}
	}
}

// mountProc makes /proc show the processes of our namespace.
func mountProc() error {
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}
