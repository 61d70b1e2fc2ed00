// Package manual writes manual pages of commands, from the texts that their --help prints.
package manual

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Write writes a page for root and for each command below it into a directory, which it creates:
// "refdbctl site serve" has the page refdbctl-site-serve.1. The pages depend on nothing but the
// commands and the version.
func Write(dir string, root *cobra.Command, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var write func(*cobra.Command) error
	write = func(cmd *cobra.Command) error {
		err := os.WriteFile(filepath.Join(dir, name(cmd)+".1"), []byte(Page(cmd, version)), 0o644)
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				err = errors.Join(err, write(c))
			}
		}
		return err
	}
	return write(root)
}

// name returns the name of a command's page.
func name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// Page returns the manual page of a command, for man(1).
func Page(cmd *cobra.Command, version string) string {
	var p page
	cmd.InitDefaultHelpFlag()
	fmt.Fprintf(&p, ".TH %q 1 \"\" %q \"globalrefdb\"\n", strings.ToUpper(name(cmd)), escape("globalrefdb "+version))
	p.section("NAME")
	fmt.Fprintf(&p, "%s \\- %s\n", escape(name(cmd)), escape(cmd.Short))
	p.section("SYNOPSIS")
	p.verbatim(cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		p.verbatim(cmd.CommandPath() + " COMMAND")
	}
	p.section("DESCRIPTION")
	if cmd.Long == "" {
		p.text(cmd.Short + ".")
	} else {
		p.text(cmd.Long)
	}
	var below []*cobra.Command
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			below = append(below, c)
		}
	}
	if len(below) > 0 {
		p.section("COMMANDS")
		for _, c := range below {
			p.item(c.Name(), c.Short)
		}
	}
	p.flags("OPTIONS", cmd.NonInheritedFlags())
	p.flags("GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.verbatim(cmd.Example)
	}
	var related []string
	if cmd.HasParent() {
		related = append(related, reference(cmd.Parent()))
	}
	for _, c := range below {
		related = append(related, reference(c))
	}
	if len(related) > 0 {
		p.section("SEE ALSO")
		p.text(strings.Join(related, ", "))
	}
	return p.String()
}

// reference names the page of a command, as pages refer to each other.
func reference(cmd *cobra.Command) string { return name(cmd) + "(1)" }

// A page is a manual page in the language of troff's macros "man".
type page struct{ strings.Builder }

func (p *page) section(title string) { fmt.Fprintf(p, ".SH %q\n", title) }

// text writes paragraphs, which are between empty lines. A paragraph with an indented line keeps its lines.
func (p *page) text(s string) {
	for paragraph := range strings.SplitSeq(strings.Trim(s, "\n"), "\n\n") {
		p.WriteString(".PP\n")
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			p.verbatim(paragraph)
			continue
		}
		p.lines(paragraph)
	}
}

func (p *page) verbatim(s string) {
	p.WriteString(".nf\n")
	p.lines(s)
	p.WriteString(".fi\n")
}

func (p *page) lines(s string) {
	for line := range strings.SplitSeq(s, "\n") {
		p.WriteString(escape(line) + "\n")
	}
}

// item writes a term and what it means.
func (p *page) item(term, meaning string) {
	p.WriteString(".TP\n\\fB" + escape(term) + "\\fR\n")
	p.lines(meaning)
}

func (p *page) flags(title string, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	p.section(title)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		term := "--" + f.Name
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		if kind != "" {
			term += " " + kind
		}
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			usage += " (default " + f.DefValue + ")"
		}
		p.item(term, usage)
	})
}

// escape returns a line that troff shows as it is.
func escape(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
