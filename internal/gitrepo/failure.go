package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Failure returns why a git command failed, in one line. Ctx is the command's context.
func Failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if line := ErrorLine(string(exit.Stderr)); line != "" {
			return errors.New("git says: " + line)
		}
	}
	return err
}

// withStderr returns err, with the command's error output if the command failed.
func withStderr(err error, stderr []byte) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		exit.Stderr = stderr
	}
	return err
}

// ErrorLine returns the line of git's error output that says why git failed.
func ErrorLine(stderr string) string {
	var last string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if line == "" || strings.Contains(line, "aborted by ") {
			continue
		}
		for _, prefix := range []string{"fatal: ", "error: "} {
			if text, ok := strings.CutPrefix(line, prefix); ok {
				return text
			}
		}
		last = line
	}
	return last
}

// reason returns why git failed or could not start, in one line. Unlike [Failure] it wants a "fatal:".
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: install git", err)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		for line := range strings.Lines(string(exit.Stderr)) {
			if fatal, ok := strings.CutPrefix(strings.TrimSpace(line), "fatal: "); ok {
				return errors.New("git says: " + fatal)
			}
		}
		return fmt.Errorf("git: %w", err)
	}
	return err
}
