package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/redact"
)

// Confirmation holds the flags of a command that destroys something.
type Confirmation struct {
	Yes    bool
	DryRun bool

	hasDryRun bool // the command has that flag
}

// AddFlags adds --yes and --dry-run to a command.
func (c *Confirmation) AddFlags(cmd *cobra.Command) {
	c.AddYes(cmd)
	c.hasDryRun = true
	cmd.Flags().BoolVarP(&c.DryRun, "dry-run", "n", false, "show what would be done, but do nothing")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
}

// AddYes is [Confirmation.AddFlags] for a command without a dry run.
func (c *Confirmation) AddYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.Yes, "yes", "y", false, "don't ask for confirmation")
}

// Check fails if the user would have to confirm and there is no terminal to ask on.
// It is called before any work is done.
func (c *Confirmation) Check(a *Run) error {
	return c.check(a, "this can't be undone, and there is no terminal to ask on")
}

// CheckUndoable is [Confirmation.Check] for a command whose work can be undone.
func (c *Confirmation) CheckUndoable(a *Run) error {
	return c.check(a, "there is no terminal to ask on")
}

func (c *Confirmation) check(a *Run, refusal string) error {
	switch {
	case c.Yes || c.DryRun || IsTerminal(a.In):
		return nil
	case c.hasDryRun:
		return exit.Usage(refusal + ": add --yes, or --dry-run to see what it would do")
	}
	return exit.Usage(refusal + ": add --yes")
}

// Confirm returns nil if the user answers yes, or gave --yes.
func (c *Confirmation) Confirm(ctx context.Context, a *Run, question string) error {
	if c.Yes {
		return nil
	}
	answer, err := a.prompt(ctx, question+" [y/N] ")
	if answer = strings.ToLower(answer); err == nil && answer != "y" && answer != "yes" {
		err = exit.With(exit.Failed, "nothing was done")
	}
	return err
}

// ConfirmByName is [Confirmation.Confirm] for removing something large: the user must type its
// name.
func (c *Confirmation) ConfirmByName(ctx context.Context, a *Run, question, name string) error {
	if c.Yes {
		return nil
	}
	answer, err := a.prompt(ctx, fmt.Sprintf("%s Type %s to go on: ", question, output.Escape(name)))
	if err == nil && answer != name {
		err = exit.With(exit.Failed, "nothing was done")
	}
	return err
}

// prompt names the database, asks the question, and returns the line that the user types.
func (a *Run) prompt(ctx context.Context, question string) (string, error) {
	a.Note("database: %s", redact.Text(a.URL, a.URL))
	fmt.Fprint(a.Messages, question)
	answer := make(chan string, 1)
	// A read from a terminal can't be interrupted: this goroutine may last until the program ends.
	go func() {
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case got := <-answer:
		return got, nil
	case <-ctx.Done():
		fmt.Fprintln(a.Messages)
		return "", ctx.Err()
	}
}

// DatabaseName returns the last part of a database's URL: the name of its file or its own.
func DatabaseName(url string) string {
	scheme, rest, _ := strings.Cut(url, ":")
	rest, _, _ = strings.Cut(rest, "?")
	rest, authority := strings.CutPrefix(rest, "//")
	name := rest[strings.LastIndexByte(rest, '/')+1:]
	if name == "" || authority && name == rest {
		return scheme
	}
	return name
}

// Progress shows a bar on a terminal, and nothing elsewhere.
type Progress struct {
	Bar *progressbar.ProgressBar
}

// NewBar returns a bar that counts to total.
func NewBar(to io.Writer, what string, total int) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(to),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

// Add counts n more.
func (p *Progress) Add(n int) {
	if p.Bar != nil {
		p.Bar.Add(n) // an error in drawing does not matter
	}
}

// Set shows that done of total refs are done. It starts the bar if need be.
func (p *Progress) Set(to io.Writer, done, total int) {
	if p.Bar == nil {
		p.Bar = NewBar(to, "refs", total)
	}
	p.Bar.Set(done)
}

// Stop removes the bar.
func (p *Progress) Stop() {
	if p.Bar != nil {
		p.Bar.Clear()
	}
}
