package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// confirmation holds the flags of a command that destroys something.
type confirmation struct {
	yes    bool
	dryRun bool
}

func (c *confirmation) addFlags(cmd *cobra.Command) {
	c.addYes(cmd)
	cmd.Flags().BoolVarP(&c.dryRun, "dry-run", "n", false, "show what would be done, and do nothing")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
}

// addYes is addFlags for a command without a dry run.
func (c *confirmation) addYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "don't ask")
}

// check fails if the user would have to confirm and there is no terminal to ask on.
// It is called before any work is done.
func (c *confirmation) check(a *app) error {
	if c.dryRun || c.checkYes(a) == nil {
		return nil
	}
	return usage(noTerminal + ": add --yes, or --dry-run to see what it would do")
}

// checkUndoable is check for a command whose work can be undone.
func (c *confirmation) checkUndoable(a *app) error {
	if c.dryRun || c.checkYes(a) == nil {
		return nil
	}
	return usage("there is no terminal to ask on: add --yes, or --dry-run to see what it would do")
}

// checkYes is check for a command without a dry run.
func (c *confirmation) checkYes(a *app) error {
	if c.yes || isTerminal(a.in) {
		return nil
	}
	return usage(noTerminal + ": add --yes")
}

const noTerminal = "this can't be undone, and there is no terminal to ask on"

// confirm returns nil if the user answers yes, or gave --yes.
func (c *confirmation) confirm(ctx context.Context, a *app, question string) error {
	if c.yes {
		return nil
	}
	answer, err := a.prompt(ctx, question+" [y/N] ")
	if answer = strings.ToLower(answer); err == nil && answer != "y" && answer != "yes" {
		err = &status{exitError, "nothing was done"}
	}
	return err
}

// confirmByName is confirm for removing something large: the user must type its name.
func (c *confirmation) confirmByName(ctx context.Context, a *app, question, name string) error {
	if c.yes {
		return nil
	}
	answer, err := a.prompt(ctx, fmt.Sprintf("%s Type %s to go on: ", question, output.Escape(name)))
	if err == nil && answer != name {
		err = &status{exitError, "nothing was done"}
	}
	return err
}

// prompt names the database, asks the question, and returns the line that the user types.
func (a *app) prompt(ctx context.Context, question string) (string, error) {
	a.note("database: %s", redact(a.url, a.url))
	fmt.Fprint(a.messages, question)
	answer := make(chan string, 1)
	// A read from a terminal can't be interrupted: this goroutine may last until the program ends.
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case got := <-answer:
		return got, nil
	case <-ctx.Done():
		fmt.Fprintln(a.messages)
		return "", ctx.Err()
	}
}

// databaseName returns the last part of a database's URL: the name of its file or its own.
func databaseName(url string) string {
	scheme, rest, _ := strings.Cut(url, ":")
	rest, _, _ = strings.Cut(rest, "?")
	rest, authority := strings.CutPrefix(rest, "//")
	name := rest[strings.LastIndexByte(rest, '/')+1:]
	if name == "" || authority && name == rest {
		return scheme
	}
	return name
}

// progress shows a bar on a terminal, and nothing elsewhere.
type progress struct {
	bar *progressbar.ProgressBar
}

// startProgress starts the bar, on a terminal. It reads the refs once to count them.
func (im *importer) startProgress(ctx context.Context, repo *gitrepo.Repo) error {
	if !isTerminal(im.app.err) {
		return nil
	}
	total := 0
	counter := &localRefs{repo: repo, all: im.all, skipped: func(string) {}, refused: func(string) {}}
	for _, err := range counter.refs(ctx) {
		if err != nil {
			return err
		}
		total++
	}
	im.progress.bar = newBar(im.app.err, "refs", total)
	return nil
}

func newBar(to io.Writer, what string, total int) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(to),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

func (p *progress) add(n int) {
	if p.bar != nil {
		p.bar.Add(n) // an error in drawing does not matter
	}
}

// set shows that done of total refs are done. It starts the bar if need be.
func (p *progress) set(to io.Writer, done, total int) {
	if p.bar == nil {
		p.bar = newBar(to, "refs", total)
	}
	p.bar.Set(done)
}

func (p *progress) stop() {
	if p.bar != nil {
		p.bar.Clear()
	}
}
