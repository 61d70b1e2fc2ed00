//go:build linux

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// TestOperationsShowWhatTheyAskAbout compares all that a terminal shows of a command whose question
// is answered with no.
func TestOperationsShowWhatTheyAskAbout(t *testing.T) {
	t.Parallel()
	w := newIntents(t)
	w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/stale", Owner: "dead/1", Age: time.Hour})
	w.InsertRef(t, "p", "refs/heads/x1", refdb.Value(id("1")))
	w.InsertRef(t, "p", "refs/heads/x2", refdb.Value(id("2")))
	r := newRepo(t, mainRef)
	w.env["TERM"] = "dumb"
	for args, want := range map[string]string{
		"locks purge --stale": `PROJECT  REF  OWNER  HELD FOR  LAST BEAT  STATE
p  refs/heads/stale  dead/1  TIME  TIME ago  stale
DATABASE
Purge 1 lock? [y/N] `,
		"locks resolve --site third --keep-old --reason x": `RESULT  PROJECT  REF  OWNER  AGE  OLD  NEW  DECISION
would_resolve  p  refs/heads/third  third/X  TIME  none  eeeeeee  keep-old
DATABASE
Let 1 ref keep the old value, or take the new one where the table says so? [y/N] `,
		"locks resolve --site third --take-new --reason x": `RESULT  PROJECT  REF  OWNER  AGE  OLD  NEW  DECISION
would_resolve  p  refs/heads/third  third/X  TIME  none  eeeeeee  take-new
DATABASE
Let 1 ref take the new value? [y/N] `,
		"refs delete p --prefix refs/heads/x": `DATABASE
Delete 2 refs of project p, from refs/heads/x1 to refs/heads/x2? [y/N] `,
		"followers remove nobody": `DATABASE
Remove the follower nobody? [y/N] `,
		"sites retire us --reason x": `DATABASE
Retire the site us? [y/N] `,
		"history prune --older-than 90d --keep 3 --even-unread 180d": `DATABASE
Delete changes older than TIME, but for the newest 3 of each ref; older than TIME even if unread, from the history? [y/N] `,
		"refs import p --overwrite --repo " + r.path: `RESULT  LOCAL  GLOBAL  REF  DETAIL
would_overwrite  COMMIT  ` + id("a") + `  refs/heads/main
DATABASE
Overwrite 1 ref of project p? [y/N] `,
	} {
		t.Run(args, func(t *testing.T) {
			term := newTerminal(t)
			cmd := w.program(t, strings.Fields(args)...)
			term.start(t, cmd)
			term.shows(t, "[y/N] ")
			shown := term.shown.String()
			term.types(t, "n\n")
			if code := exitOf(t, cmd); code != exit.Failed {
				t.Errorf("status %d", code)
			}
			term.shows(t, "refdbctl: nothing was done")
			shown = strings.ReplaceAll(shown, "\r\n", "\n")
			shown = strings.ReplaceAll(shown, "refdbctl: database: "+w.URL(), "DATABASE")
			shown = regexp.MustCompile(` ([0-9.]+(ms|[hms]))+\b`).ReplaceAllString(strings.ReplaceAll(shown, r.commit, "COMMIT"), " TIME")
			if got := varying(shown); got != want {
				t.Errorf("got\n%q, want\n%q", got, want)
			}
		})
	}
	if acts := w.audit(t); len(acts) != 0 {
		t.Errorf("recorded: %+v", acts)
	}
}
