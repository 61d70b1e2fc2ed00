package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stepVariable names the file that tells a process how far its wall clock is off.
const stepVariable = "CHAOS_CLOCK_STEP"

//go:embed clock/step.c
var stepLibrary string

//go:embed clock/wallstep.go.txt
var wallStepSource string

// An instant is a reading of CLOCK_BOOTTIME: one clock for all processes of the
// machine, which nobody steps and which goes on while a process is frozen.
type instant int64

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err)) // every Linux has it
	}
	return instant(t.Nano())
}

func (i instant) add(d time.Duration) instant { return i + instant(d) }

func (i instant) sub(earlier instant) time.Duration { return time.Duration(i - earlier) }

// A wallClock is the time of day for one process or several.
type wallClock struct {
	path string
}

func newWallClock(path string) (wallClock, error) {
	c := wallClock{path}
	return c, c.step(0)
}

// step makes the clock wrong by that much, in whole seconds.
func (c wallClock) step(by time.Duration) error {
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	var seconds [8]byte
	binary.NativeEndian.PutUint64(seconds[:], uint64(int64(by/time.Second)))
	_, err = f.WriteAt(seconds[:], 0)
	return err
}

// variable returns the environment variable of a process that reads this clock.
func (c wallClock) variable() string { return stepVariable + "=" + c.path }

// buildStepLibrary compiles the library that steps the clock of a server written in C or C++.
func buildStepLibrary(ctx context.Context, dir string) (string, error) {
	source, library := filepath.Join(dir, "step.c"), filepath.Join(dir, "step.so")
	if err := os.WriteFile(source, []byte(stepLibrary), 0o644); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", library, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile the library that steps a server's clock: %w: install gcc: %s", err, out)
	}
	return library, nil
}

// buildSite compiles this program once more, with a time.Now whose wall clock
// can be stepped: Go asks the kernel's vDSO for the time, where no library gets
// in between. The monotonic reading stays, as it does when a real clock is stepped.
func buildSite(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("look for Go's source: %w", err)
	}
	standard := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(standard, "time.go"))
	if err != nil {
		return "", err
	}
	const reading = "\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), reading) != 1 {
		return "", fmt.Errorf("%s/time.go reads the clock in a way that is not known here", standard)
	}
	stepped := strings.Replace(string(text), reading, reading+"\tsec += *wallStep\n", 1)
	files := map[string]string{"time.go": stepped, "wallstep.go": wallStepSource}
	replace := make(map[string]string)
	for name, text := range files {
		path := filepath.Join(dir, "time_"+name+".txt")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(standard, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "site")
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", list, "-o", program, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the sites, in the directory of package chaos: %w: %s", err, out)
	}
	return program, nil
}
