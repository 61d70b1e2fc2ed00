package cli_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
)

// Without a terminal a command says which flags help, and names none that it does not have.
func TestWhatHelpsWithoutATerminal(t *testing.T) {
	t.Parallel()
	run := &cli.Run{Streams: cli.Streams{In: strings.NewReader("")}}
	for name, c := range map[string]struct {
		add func(*cli.Confirmation, *cobra.Command)
		yes bool
		dry bool
	}{
		"--yes and --dry-run": {add: (*cli.Confirmation).AddFlags, dry: true},
		"--yes alone":         {add: (*cli.Confirmation).AddYes},
		"it was given":        {add: (*cli.Confirmation).AddYes, yes: true},
	} {
		var confirmation cli.Confirmation
		cmd := &cobra.Command{}
		c.add(&confirmation, cmd)
		confirmation.Yes = c.yes
		err := confirmation.Check(run)
		if c.yes != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "add --yes") || strings.Contains(err.Error(), "--dry-run") != c.dry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
