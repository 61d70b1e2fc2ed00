package manual_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/manual"
)

func tool() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool", Short: "Do things"}
	root.PersistentFlags().String("db", "", "the database's `URL`")
	do := &cobra.Command{
		Use: "do [THING]", Short: "Do a thing", Run: run, Example: "  tool do \\\n    .it",
		Long: "Do a thing,\nor none.\n\n'This' is -not- all:\n  - one\n    \\two\n\n.PP is no macro here.",
	}
	do.Flags().IntP("times", "n", 3, "how often")
	root.AddCommand(do, &cobra.Command{Use: "secret", Run: run, Hidden: true})
	return root
}

func TestEachCommandThatIsNotHiddenHasAPage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man")
	if err := manual.Write(dir, tool(), "v1"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"tool-do.1", "tool.1"}; !slices.Equal(names, want) {
		t.Errorf("the pages are %q, not %q", names, want)
	}
}

func TestAPageHasAllThatHelpSays(t *testing.T) {
	t.Parallel()
	do, _, err := tool().Find([]string{"do"})
	if err != nil {
		t.Fatal(err)
	}
	got := manual.Page(do, "v1.2")
	for _, want := range []string{
		".TH \"TOOL-DO\" 1 \"\" \"globalrefdb v1.2\" \"globalrefdb\"\n",
		".SH \"NAME\"\ntool\\-do \\- Do a thing\n",
		".SH \"SYNOPSIS\"\n.nf\ntool do [THING] [flags]\n.fi\n",
		".SH \"DESCRIPTION\"\n.PP\nDo a thing,\nor none.\n.PP\n.nf\n\\&'This' is \\-not\\- all:\n  \\- one\n    \\etwo\n.fi\n.PP\n\\&.PP is no macro here.\n",
		".TP\n\\fB\\-n, \\-\\-times int\\fR\nhow often (default 3)\n",
		".SH \"GLOBAL OPTIONS\"\n.TP\n\\fB\\-\\-db URL\\fR\nthe database's URL\n",
		".SH \"EXAMPLES\"\n.nf\n  tool do \\e\n    .it\n.fi\n",
		".SH \"SEE ALSO\"\n.PP\ntool(1)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

// What man prints of a page is what the help says.
func TestManShowsThePage(t *testing.T) {
	t.Parallel()
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("man is not installed: whether it understands the pages is not looked at")
	}
	dir := t.TempDir()
	if err := manual.Write(dir, tool(), "v1"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(man, "--warnings", "-l", filepath.Join(dir, "tool-do.1"))
	var complaints strings.Builder
	cmd.Stderr = &complaints
	cmd.Env = append(os.Environ(), "MANPAGER=cat", "MANWIDTH=80", "LC_ALL=C.UTF-8")
	out, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Errorf("%v: %s", err, complaints.String())
	}
	for _, want := range []string{"Do a thing, or none.", "'This' is -not- all:\n", "    \\two\n", ".PP is no macro here.", "-n, --times int", "tool do \\\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("man does not show %q:\n%s", want, out)
		}
	}
}
