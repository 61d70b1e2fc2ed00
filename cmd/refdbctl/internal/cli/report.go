package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// EmulatorVariable makes Google's client libraries use an emulator.
const EmulatorVariable = "SPANNER_EMULATOR_HOST"

// Report prints err in one line, and returns the exit status.
func (a *Run) Report(err error) int {
	if err != nil && err.Error() != "" {
		message := output.OneLine(err.Error())
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, refdb.ErrLocked) {
			message += fmt.Sprintf(" (no answer from the database within --timeout %s: %s)", a.Timeout, a.address())
		}
		var frozen *refdb.FrozenError
		if errors.As(err, &frozen) {
			message += ": to allow changes, run " + wire.CommandLine("refdbctl project unfreeze", frozen.Project)
		}
		fmt.Fprintf(a.Messages, "refdbctl: %s\n", message)
	}
	return exit.Code(err)
}

// address returns where the database is, without passwords.
func (a *Run) address() string {
	address := redact.Text(a.URL, a.URL)
	if emulator := a.Env(EmulatorVariable); emulator != "" && strings.HasPrefix(a.URL, "spanner:") {
		address += fmt.Sprintf(", the emulator at %s that %s names", emulator, EmulatorVariable)
	}
	return address
}

// Note prints a line on standard error.
func (a *Run) Note(format string, args ...any) {
	fmt.Fprintf(a.Messages, "refdbctl: %s\n", output.OneLine(fmt.Sprintf(format, args...)))
}

// PrintSummary prints a summary unless the format is JSON, where it is in fields.
func (a *Run) PrintSummary(project, summary string) (err error) {
	switch a.Format {
	case output.Table:
		_, err = fmt.Fprintf(a.Out, "%s: %s\n", output.Escape(project), summary)
	case output.CSV:
		a.Note("%s: %s", project, summary)
	}
	return err
}
