// Package command runs programs, such as git, and watches what they consume.
package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Output returns what a command prints.
func Output(ctx context.Context, name string, args ...string) (string, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Git returns what the command prints.
func Git(ctx context.Context, args ...string) (string, error) { return Output(ctx, "git", args...) }

// Watch runs a command and returns its peak of resident memory, in bytes.
// The kernel keeps the peak (VmHWM) until the process ends, so it is read every few
// milliseconds. The resource usage at the process's end is of no use: it includes
// the memory of the process that started it.
func Watch(cmd *exec.Cmd) (peak int64, err error) {
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	looks := time.NewTicker(5 * time.Millisecond)
	defer looks.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil && peak == 0 {
				err = errors.New("its memory could not be watched")
			}
			return peak, err
		case <-looks.C:
			if now, err := HighWater(cmd.Process.Pid); err == nil {
				peak = max(peak, now)
			}
		}
	}
}

// HighWater returns a process's peak memory. It fails if the process has ended.
func HighWater(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the process has no memory any more")
}
