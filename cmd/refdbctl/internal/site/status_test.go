package site

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
)

func TestTheStatusSaysHowFarReadersOfMovesAre(t *testing.T) {
	t.Parallel()
	guard := "0123456789abcdef0123456789abcdef"
	for want, s := range map[string]client.Status{
		"reader       guard 01234567: connected for 1m0s; all moves read\n": {Readers: []client.Reader{{Guard: guard, Connected: true, Age: 60}}},
		"reader       guard 01234567: not connected for 1m0s; 120 bytes of moves unread, the oldest for 5m0s\n": {
			Readers: []client.Reader{{Guard: guard, Age: 60, Unread: 120, Oldest: 300}},
		},
		"reader       guard 01234567: connected for 1m0s; comparing everything, because the list does not have all the moves that it missed\n": {
			Readers: []client.Reader{{Guard: guard, Connected: true, Age: 60, Comparing: true}},
		},
		"reader       guard 01234567: has had a session for 10m0s, but has never read moves: its indexes and caches are not updated; see its log\n": {
			Readers: []client.Reader{{Guard: guard, Never: true, Age: 600, Oldest: 600}},
		},
		"hooks        damaged: pushes are refused, or not guarded: /srv/git/.refdb-hooks/current: gone: run refdbctl site check --repair\n": {HooksError: "/srv/git/.refdb-hooks/current: gone"},
		"moves        not listed, so indexes are not updated: no space left: check the disk of site.state\n":                                {MovesError: "no space left"},
		"unreachable  us: its daemon does not run, or can't reach the database (last seen 2026-11-29T01:02:03Z); no other site has testified about it: after a restart of the database's server all sites would " +
			"refuse pushes until it is back: start the daemon or repair the network; if the site is gone for good: `refdbctl sites retire us --reason TEXT`\n": {
			Unreachable: []client.UnreachableSite{{Site: "us", Seen: time.Date(2026, 11, 29, 1, 2, 3, 0, time.UTC)}},
		},
		"task         reconciliation: running for 5m0s; last error: down\ntasks        running: follower, journal; ended: after-boot\n": {Tasks: []client.Task{
			{Name: "after-boot", State: client.TaskEnded, Age: 120}, {Name: "follower", State: client.TaskRunning, Age: 300},
			{Name: "journal", State: client.TaskRunning, Age: 300}, {Name: "reconciliation", State: client.TaskRunning, Age: 300, Error: "down"},
		}},
	} {
		var out strings.Builder
		if err := printStatus(&out, s); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("the status is\n%s, %v, want\n%s", out.String(), err, want)
		}
	}
}
