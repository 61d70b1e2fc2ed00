package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
)

// consent is the flags of a command that destroys something.
type consent struct {
	yes    bool
	dryRun bool
}

func (c *consent) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVarP(&c.dryRun, "dry-run", "n", false, "show what would be done, and do nothing")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
}

// check is called before anything else: nobody should have to wait to hear
// that he can't be asked.
func (c *consent) check(a *app) error {
	if !c.yes && !c.dryRun && !isTerminal(a.in) {
		return usage("this can't be undone, and there is no terminal to ask on: add --yes, or --dry-run to see what it would do")
	}
	return nil
}

// ask returns nil if the user agrees to what was announced.
func (c *consent) ask(ctx context.Context, a *app, question string) error {
	if c.yes {
		return nil
	}
	answer, err := a.answer(ctx, question+" [y/N] ")
	if answer = strings.ToLower(answer); err == nil && answer != "y" && answer != "yes" {
		err = &status{exitError, "nothing was done"}
	}
	return err
}

// askName is ask for what removes so much that the name of it must be typed.
func (c *consent) askName(ctx context.Context, a *app, question, name string) error {
	if c.yes {
		return nil
	}
	answer, err := a.answer(ctx, fmt.Sprintf("%s Type %s to go on: ", question, output.Escape(name)))
	if err == nil && answer != name {
		err = &status{exitError, "nothing was done"}
	}
	return err
}

// answer says which database a question is about, asks, and returns the line that is typed.
func (a *app) answer(ctx context.Context, question string) (string, error) {
	a.note("database: %s", redact(a.url, a.url))
	fmt.Fprint(a.messages, question)
	answer := make(chan string, 1)
	// A read from a terminal can't be interrupted; at the program's end it goes with it.
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

// databaseName is the last part of a database's URL: its file's name, or its own.
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
