package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// runWatched runs a command and returns the most memory that it ever had
// resident, in bytes. The kernel keeps the high-water mark (VmHWM) until the
// process ends, so it is read every few milliseconds. Its resource usage at the end would
// be of no use: that counts the memory of the process that started it, too.
func runWatched(cmd *exec.Cmd) (peak int64, err error) {
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
			if now, err := highWater(cmd.Process.Pid); err == nil {
				peak = max(peak, now)
			}
		}
	}
}

// highWater fails for a process that has ended.
func highWater(pid int) (int64, error) {
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
