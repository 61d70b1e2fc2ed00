package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// operands are the arguments of a command that are no flags, as its usage line has them.
type operands struct {
	required []string // names such as PROJECT
	all      []string // these and the optional ones
	repeated bool     // the last one may be given several times
}

// operandsOf parses a usage line, such as "log PROJECT [REF]".
func operandsOf(use string) (o operands) {
	words := strings.Fields(use)
	optional := false
	for i := 1; i < len(words) && words[i] != "--"; i++ {
		word := strings.TrimLeft(words[i], "[(")
		optional = optional || word != words[i]
		switch name := strings.TrimRight(word, "])."); {
		case strings.HasPrefix(name, "--"):
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") {
				i++ // its value
			}
		case name == "" || name == "|" || strings.ToUpper(name) != name:
		default:
			name, _, _ = strings.Cut(name, "[")
			o.repeated = o.repeated || strings.Contains(word, "...")
			o.all = append(o.all, name)
			if !optional {
				o.required = append(o.required, name)
			}
		}
	}
	return o
}

// explainArguments makes the commands below root name the arguments that are missing or too many.
func explainArguments(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		explainArguments(cmd)
		check, o := cmd.Args, operandsOf(cmd.Use)
		if cmd.HasSubCommands() || check == nil {
			continue
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			switch {
			case err == nil:
				return nil
			case len(args) < len(o.required):
				return errors.New(missing(o.required[len(args):]))
			case len(args) > len(o.all) && !o.repeated:
				return fmt.Errorf("unexpected argument %q", args[len(o.all)])
			}
			return err
		}
	}
}

func missing(names []string) string {
	if len(names) == 1 {
		return names[0] + " is missing"
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last] + " are missing"
}

// helpCommand replaces cobra's, which ends with status 0 whatever it is asked for.
func helpCommand(root *cobra.Command) *cobra.Command {
	find := func(words []string) (*cobra.Command, error) {
		cmd := root
		for _, word := range words {
			i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
			if i < 0 {
				return nil, NoSuchCommand(cmd, []string{word})
			}
			cmd = cmd.Commands()[i]
		}
		return cmd, nil
	}
	return &cobra.Command{
		Use:     "help [COMMAND...]",
		Short:   "Show the help of a command",
		Example: "  " + root.Name() + " help version",
		Args: func(_ *cobra.Command, args []string) error {
			_, err := find(args)
			return err
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, begun string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			if cmd, err := find(args); err == nil {
				for _, c := range cmd.Commands() {
					if c.IsAvailableCommand() && strings.HasPrefix(c.Name(), begun) {
						names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, err := find(args)
			if err != nil {
				return err
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
