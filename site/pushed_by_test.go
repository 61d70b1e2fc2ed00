package site_test

import (
	"os"
	"os/exec"
)

// pushers is the history of a ref: who pushed, through which owner of intents, oldest first.
func (g *guard) pushers(ref string) (by, owners []string) {
	g.tb.Helper()
	for c, err := range g.db.History(g.tb.Context(), "team/app", ref) {
		if err != nil {
			g.tb.Fatal(err)
		}
		by, owners = append([]string{c.By}, by...), append([]string{c.Owner}, owners...)
	}
	return by, owners
}

// gitAs runs git in the repository as a front end would that sets variables.
func (g *guard) gitAs(env []string, args ...string) {
	g.tb.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir=" + g.repo}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		g.tb.Fatalf("git %q: %v: %s", args, err, out)
	}
}
