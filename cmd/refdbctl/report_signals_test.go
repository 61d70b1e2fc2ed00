//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// script is a shell's command line in which $REFDBCTL is the program.
func (w *world) script(tb testing.TB, shell, line string) *exec.Cmd {
	tb.Helper()
	cmd := w.program(tb)
	path, err := exec.LookPath(shell)
	if err != nil {
		tb.Fatalf("this test needs %s: %v", shell, err)
	}
	cmd.Env = append(cmd.Env, "REFDBCTL="+cmd.Path)
	cmd.Path, cmd.Args = path, []string{shell, "-c", line}
	return cmd
}

func TestCtrlCEndsTheScriptToo(t *testing.T) {
	t.Parallel()
	for name, redirection := range map[string]string{
		"the command has the terminal": "",
		"the script has it":            "</dev/null",
	} {
		for _, shell := range []string{"sh", "bash"} {
			t.Run(name+", "+shell, func(t *testing.T) {
				w := newWorld(t)
				term := newTerminal(t)
				cmd := w.script(t, shell, `"$REFDBCTL" lock p `+mainRef+` `+patientLock+` -- sh -c "echo ready; exec sleep 1000" `+redirection+
					`; echo "the script goes on"`)
				term.start(t, cmd)
				term.shows(t, "ready")
				term.types(t, "\x03")
				if code := exitOf(t, cmd); code != -int(syscall.SIGINT) || strings.Contains(term.all(), "goes on") {
					t.Errorf("status %d: %q", code, term.shown.String())
				}
				w.isFree(t, mainRef)
			})
		}
	}
}

func TestCtrlCThatTheCommandSurvivedLeavesTheScriptAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.script(t, "bash", `"$REFDBCTL" lock p `+mainRef+` `+patientLock+` -- sh -c "trap 'exit 5' INT; echo ready; read x"; echo "goes on after $?"`)
	term.start(t, cmd)
	term.shows(t, "ready")
	term.types(t, "\x03")
	if code := exitOf(t, cmd); code != 0 {
		t.Errorf("status %d", code)
	}
	term.shows(t, "goes on after 5")
}

func TestRefdbctlDiesOfTheSignalThatTheCommandDiedOf(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGSEGV} {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t)
			h := w.hold(t, sleeper)
			if err := syscall.Kill(h.child, s); err != nil {
				t.Fatal(err)
			}
			if r := h.end(t); r.code != -int(s) || r.err != "" {
				t.Errorf("%+v", r)
			}
			w.isFree(t, mainRef)
		})
	}
}

func TestASignalThatTheCallerIgnoresIsIgnored(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t)
			h := w.holdIn(t, w.script(t, "sh", fmt.Sprintf(`trap "" %d; exec "$REFDBCTL" lock p %s %s -- sh -c 'echo $$; exec sleep 1000'`, s, mainRef, patientLock)))
			for who, pid := range map[string]int{"refdbctl": h.cmd.Process.Pid, "the command": h.child} {
				if !ignores(t, pid, s) {
					t.Errorf("%s does not ignore it", who)
				}
			}
		})
	}
}

// ignores reports whether a process ignores a signal.
func ignores(tb testing.TB, pid int, s syscall.Signal) bool {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		tb.Fatal(err)
	}
	_, mask, _ := strings.Cut(string(text), "SigIgn:")
	mask, _, _ = strings.Cut(strings.TrimSpace(mask), "\n")
	set, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return set&(1<<(s-1)) != 0
}
