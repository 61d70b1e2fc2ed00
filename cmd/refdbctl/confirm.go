package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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
	fmt.Fprintf(a.messages, "%s [y/N] ", question)
	answer := make(chan string, 1)
	// A read from a terminal can't be interrupted; at the program's end it goes with it.
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case got := <-answer:
		if got == "y" || got == "yes" {
			return nil
		}
		return &status{exitError, "nothing was done"}
	case <-ctx.Done():
		fmt.Fprintln(a.messages)
		return ctx.Err()
	}
}
