//go:build linux

package sites

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

// silentRounds is how often each row below runs with REFDB_TEST_LONG.
const silentRounds = 25

var (
	quietTrio = trioSize{more: []string{"ap"}, pushers: 4, projects: 2, largest: 1 << 20, plain: true, rest: 20 * time.Millisecond}
	// calmTrio spares the processor: what has to happen happens with a few pushes, too.
	calmTrio = trioSize{more: []string{"ap"}, pushers: 3, projects: 2, largest: 10 << 10, plain: true, rest: 700 * time.Millisecond}
)

// A silencing is how a site falls silent, and how it comes back.
type silencing struct {
	name string
	// announced: a push stands that the site has announced to the database, and that its git has not made. Both
	// functions get the process ID of that git, or 0.
	announced bool
	begin     func(s *trioSite, git int)
	end       func(s *trioSite, git int)
}

var (
	killings = []silencing{
		{"the daemon is killed, and a git that was about to move a ref", true, killsDaemon, startsAgain},
		{"the daemon is killed, and gits go on", false, killsDaemon, startsAgain},
		{"all processes are killed", false, killsAll, startsAgain},
		{"all processes are killed, and a git that was about to move a ref", true, killsAll, startsAgain},
	}
	pauses = []silencing{
		{"the daemon stands still", false, pausesDaemon, continues},
		{"the daemon stands still, and a git that moves its ref before the daemon goes on", true, pausesDaemon, func(s *trioSite, git int) {
			signal(s.trio, git, syscall.SIGCONT)
			gone(s.trio, git)
			continues(s, 0)
		}},
		{"the daemon stands still, and a git that moves its ref after the daemon is back", true, pausesDaemon, func(s *trioSite, git int) {
			continues(s, 0)
			s.trio.isBack(s)
			signal(s.trio, git, syscall.SIGCONT)
		}},
	}
)

func killsDaemon(s *trioSite, git int) {
	s.setLost(true)
	s.kill()
	if git != 0 {
		kill9(s.trio, git)
	}
}

func killsAll(s *trioSite, _ int) {
	s.setLost(true)
	if err := s.killAll(); err != nil {
		s.trio.Fatal(err)
	}
}

func startsAgain(s *trioSite, _ int) {
	s.server.start()
	s.setLost(false)
}

func pausesDaemon(s *trioSite, _ int) { signal(s.trio, s.daemon.Process.Pid, syscall.SIGSTOP) }
func continues(s *trioSite, _ int)    { signal(s.trio, s.daemon.Process.Pid, syscall.SIGCONT) }

// One of three sites falls silent under load: its daemon is killed, or stands still. The others find that, and from then on wait for it no
// more. Then the server of the database is replaced, and they go on by themselves or, if the database went back in time, after refdbctl
// recover. The silent site comes back. In the end all acknowledged pushes are in the history, those that the silent site had acknowledged,
// too, and all sites agree.
//
// With REFDB_TEST_LONG=1 there are 25 rounds of each row under more pushes, and a table at the end.
func TestASilentSiteHoldsUpNobodyWhenTheServerIsReplaced(t *testing.T) {
	report := &silentReport{}
	t.Cleanup(func() { report.print(t) })
	for number, row := range silentRows {
		t.Run(row.name, func(t *testing.T) {
			if testing.Short() && !row.short && !long() {
				t.Skip("left out by -short: three sites whose database is replaced while one of them is silent, half a minute; make test-all runs it")
			}
			times := report.row(row)
			t.Parallel() // most of a round is waiting
			if !long() {
				silentRound(t, row, number, 0, times)
				return
			}
			for i := range silentRounds {
				t.Run(fmt.Sprint(i), func(t *testing.T) { silentRound(t, row, number+i, i, times) })
			}
		})
	}
}

// silentRound runs a round of a row. The number says how the site falls silent, and when copies are made. In long runs the lock on the
// site's name gets stale by itself in the first round alone, which also checks more.
func silentRound(t *testing.T, row silentRow, number, round int, times *silentTimes) {
	t.Helper()
	size, how := calmTrio, killings
	if long() {
		size = quietTrio
	}
	if row.pausable {
		how = append(killings[:len(killings):len(killings)], pauses...)
	}
	r := row.new(t, number)
	if long() {
		r.light = r.light || round > 0
	} else {
		r.light = r.light || testing.Short() || !row.checked
	}
	x := newTrioOn(t, size, r.on)
	x.ages = !long() || round > 0
	x.silentRound(r, how[number%len(how)], times)
}

// A silentReport is what rounds of all rows took.
type silentReport struct{ rows []*silentTimes }

// silentTimes are the longest of a row's rounds.
type silentTimes struct {
	row     string
	rounds  int
	away    time.Duration            // from when the site's lock was stale until nobody waited for the site
	after   map[string]time.Duration // by site: from when the database could be written until the site acknowledged a push
	down    time.Duration            // from the server's end until all sites that are there had acknowledged a push
	back    time.Duration            // from when the silent site came back until it acknowledged a push
	lost    int                      // acknowledged pushes that are not in the history
	opposed int                      // acknowledged pushes whose announcement was lost, and whose ref has another value by now
}

// add adds the times of a round.
func (s *silentTimes) add(round silentTimes) {
	s.rounds++
	s.away, s.down, s.back = max(s.away, round.away), max(s.down, round.down), max(s.back, round.back)
	for site, d := range round.after {
		s.after[site] = max(s.after[site], d)
	}
}

func (r *silentReport) row(row silentRow) *silentTimes {
	r.rows = append(r.rows, &silentTimes{row: row.name, after: make(map[string]time.Duration)})
	return r.rows[len(r.rows)-1]
}

// print prints a table.
func (r *silentReport) print(t *testing.T) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "the server\trounds\taway after\tpush at eu after\tat us\twithout pushes\tpush at ap after\tlost\topposed")
	for _, s := range r.rows {
		round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", s.row, s.rounds, round(s.away), round(s.after["eu"]), round(s.after["us"]), round(s.down), round(s.back), s.lost, s.opposed)
	}
	w.Flush()
	t.Logf(`the longest of all rounds
%s
away after        since the lock on the name of ap, the silent site, was stale
push at eu, us    since the database answered again or, if it had lost pushes, since the end of refdbctl recover
without pushes    since the end of the server, until both eu and us had acknowledged one
push at ap        since its daemon was started or went on
opposed           acknowledged by ap's git when its daemon was silent; the database had lost the announcement, and has another value by now`, &text)
}
