package site

import (
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
)

var (
	infoMetric        = describe("info", "Always 1; the label has the daemon's version.", "version")
	startedMetric     = describe("start_time_seconds", "Start time of the daemon, in seconds since the epoch.")
	servingMetric     = describe("serving", "1 if the daemon serves pushes: it holds its site's name and has adopted what its predecessor left; 0 while it refuses them.")
	databaseMetric    = describe("database_up", "1 if the database answered the last request, at most ten seconds ago; 0 otherwise.")
	rootMetric        = describe("root_gone", "1 if site.root can't be read, or is empty although it had followed repositories; 0 otherwise, or if no root is configured.")
	unreachableMetric = describe("unreachable_sites", "Other sites whose daemons don't run or can't reach the database, and without which no push would be accepted after a restart of its server. "+
		"No sample while that is not known.")
	stuckMetric        = describe("stuck_refs", "Refs whose last push can't be settled without an operator.")
	activeMetric       = describe("pushes_active", "Git processes with announced ref moves that have not ended.")
	intentsMetric      = describe("intents_pending", "Pending intents of this site in the database. Each keeps its ref locked at all sites.")
	oldestMetric       = describe("intent_oldest_seconds", "Age of the oldest pending intent of this site, in seconds; 0 if there is none.")
	transactionsMetric = describe("transactions_total", "Git ref transactions, accepted or refused, including those that move no guarded ref. "+
		"A push that is refused by an earlier hook starts none.", "result")
	refsMetric = describe("refs_total", "Pushed refs by result: moved to the new value (moved); accepted, but left at the old value by git (kept); "+
		"refused (refused).", "result")
	wouldRefuseMetric = describe("would_refuse_total", "Git ref transactions accepted only because their project is in mode log.")
	alarmsMetric      = describe("alarms_total", "Alarms: a push that can't be settled, a ref value that the database never had, a Gerrit running without the guard, "+
		"a guard without a session that pushes wait for, a followed repository that is gone.")
	deathsMetric    = describe("pusher_deaths_total", "Git processes and guards that died with unsettled transactions.")
	heededMetric    = describe("decisions_heeded_total", "Operators' decisions applied to repositories.")
	failuresMetric  = describe("database_failures_total", "Failed requests of the daemon to the database.")
	comparedMetric  = describe("repositories", "Repositories of the site that have been compared with the database.")
	behindMetric    = describe("repositories_behind", "Repositories with refs that differ from the database although no move of them is in progress.")
	refsBehind      = describe("refs_behind", "Refs, in all repositories, that differ from the database although no move of them is in progress.")
	lagMetric       = describe("lag_seconds", "Longest time that the database has held a value that this site lacks, in seconds; 0 if there is none.")
	unreadMetric    = describe("repositories_not_compared", "Repositories whose last comparison with the database failed.")
	lookedMetric    = describe("lag_look_age_seconds", "Time since the least recent comparison of a repository with the database, in seconds.")
	followedMetric  = describe("followed_refs_total", "Refs updated to follow other sites, with objects from the database.")
	unpackedMetric  = describe("packs_unpacked_total", "Packs from other sites that were unpacked.")
	followingMetric = describe("repositories_following", "Repositories that are catching up with the database, or are queued for it.")
	notFollowing    = describe("repositories_not_following", "Followed repositories whose last catch-up failed.")
	notFollowingFor = describe("not_following_seconds", "Longest time that a repository whose catch-up fails has been behind, in seconds; 0 if there is none.")
	unplacedRefs    = describe("refs_not_placed", "Refs that git refused to move in the last catch-up.")
	statesMetric    = describe("repositories_state", "Repositories of guarded projects by state: guarded; open (not enabled yet); disabled (by an operator); "+
		"bypassed (enabled, but their configuration does not lead git to the hooks); unknown (unreadable). At most five minutes old.", "state")
	storedPacks    = describe("packs_stored_bytes", "Size of the packs in the database that pushes have used, for all projects and sites, in bytes.")
	unusedPacks    = describe("packs_unused_bytes", "Size of the packs in the database that no push has used yet, for all projects and sites, in bytes.")
	packsHeld      = describe("packs_held", "Repositories held up by a pack from another site that can't be unpacked.")
	malformedPacks = describe("packs_malformed_total", "Packs from other sites with an object that git's fsck objects to. They were unpacked.")
	followFailures = describe("follow_failures_total", "Failed catch-ups of repositories.")
	unpackedBytes  = describe("packs_unpacked_bytes_total", "Size of the packs from other sites that were unpacked, in bytes.")
	sessionsMetric = describe("sessions", "Guards by state: with a session (open); running without one (broken; silent after a minute if pushes wait for it); "+
		"dead, with transactions that are being settled (dead).", "state")
	gerritMetric = describe("gerrit_unguarded", "1 if the site's Gerrit (site.gerrit) has run for half a minute without the guard, so that its writes don't reach the other sites; "+
		"0 otherwise, or if no Gerrit is configured.")
	hooksMetric   = describe("hooks_damaged", "1 while the site's hook directory is damaged, so that pushes are refused or unguarded; 0 otherwise.")
	hooksLost     = describe("hooks_damaged_total", "Times that the site's hook directory was found damaged. Unless hooks_damaged is 1, the daemon restored it.")
	sessionOpen   = describe("session_transactions", "Unsettled transactions of guards.")
	sessionOldest = describe("session_transaction_oldest_seconds", "Age of the oldest unsettled transaction of a guard, in seconds; 0 if there is none.")
	movesListed   = describe("moves_total", "Entries written to the list of moves, which guards read to update their indexes.")
	movesWritable = describe("moves_writable", "1 if the list of moves can be written; 0 otherwise: guards' indexes then don't follow.")
	movesReaders  = describe("moves_readers", "Guards that read the list of moves, by whether they are connected (yes, no).", "connected")
	movesUnread   = describe("moves_unread_bytes", "Size of the part of the list that the slowest guard has not read, in bytes.")
	movesOldest   = describe("moves_unread_oldest_seconds", "Age of the oldest entry of the list that some guard has not read, in seconds; 0 if there is none. For a guard that has never read, "+
		"time since its first session.")
	mirrorActive   = describe("push_mirror_active", "1 if this site pushes to the mirror, or sees that another site does; 0 otherwise.", "mirror")
	mirrorBehind   = describe("push_mirror_projects_behind", "Projects with changes that the mirror lacks. Only at the site that pushes to it.", "mirror")
	mirrorFor      = describe("push_mirror_behind_seconds", "Longest time that the mirror has lacked a change, in seconds; 0 if it lacks none. Only at the site that pushes to it.", "mirror")
	daemonMeasures = [...]*prometheus.Desc{
		infoMetric, startedMetric, servingMetric, databaseMetric, rootMetric, unreachableMetric, stuckMetric, activeMetric, intentsMetric, oldestMetric, transactionsMetric, refsMetric,
		wouldRefuseMetric, alarmsMetric, deathsMetric, heededMetric, failuresMetric, comparedMetric, behindMetric, refsBehind, lagMetric, unreadMetric, lookedMetric, followedMetric, unpackedMetric, followingMetric,
		notFollowing, notFollowingFor, unplacedRefs, followFailures, unpackedBytes, sessionsMetric, sessionOpen, sessionOldest,
		movesListed, movesWritable, movesReaders, movesUnread, movesOldest, gerritMetric, hooksMetric, hooksLost, packsHeld, malformedPacks, statesMetric, storedPacks, unusedPacks, mirrorActive, mirrorBehind, mirrorFor,
	}
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("refdb_site_"+name, help, labels, nil)
}

// A collector collects a daemon's metrics. It asks no database, and names nothing.
type collector struct{ *Daemon }

func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, counted := range c.state.Counts.Collectors() {
		counted.Describe(descriptions)
	}
	for _, d := range daemonMeasures {
		descriptions <- d
	}
}

func (c collector) Collect(metrics chan<- prometheus.Metric) {
	for _, counted := range c.state.Counts.Collectors() {
		counted.Collect(metrics)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	s := c.status()
	gauge(infoMetric, 1, s.Version)
	gauge(startedMetric, float64(s.Started.UnixMilli())/1000)
	gauge(servingMetric, oneIf(s.Presence))
	gauge(databaseMetric, oneIf(s.Database))
	gauge(rootMetric, oneIf(s.RootGone))
	if s.Unreachable != nil {
		gauge(unreachableMetric, float64(len(s.Unreachable)))
	}
	gauge(stuckMetric, float64(len(s.Stuck)))
	gauge(activeMetric, float64(len(s.Pushes)))
	open, oldest := c.moving.Open.Count()
	gauge(intentsMetric, float64(open))
	gauge(oldestMetric, oldest.Seconds())
	count(transactionsMetric, s.Counters.Prepared, "accepted")
	count(transactionsMetric, s.Counters.Refused, "refused")
	count(refsMetric, s.Counters.Updated, "moved")
	count(refsMetric, s.Counters.Dropped, "kept")
	count(refsMetric, c.state.Counts.RefusedRefs.Load(), "refused")
	count(wouldRefuseMetric, c.logged.Total())
	count(alarmsMetric, s.Counters.Alarms)
	count(deathsMetric, s.Counters.Deaths)
	count(heededMetric, s.Counters.Heeded)
	count(failuresMetric, s.Counters.Failures)
	l := c.lags.Sum()
	gauge(comparedMetric, float64(l.Repositories))
	gauge(behindMetric, float64(l.Behind))
	gauge(refsBehind, float64(l.Refs))
	gauge(lagMetric, l.Longest.Seconds())
	gauge(unreadMetric, float64(l.Failed))
	gauge(lookedMetric, l.Looked.Seconds())
	moved, unpacked, waiting := c.follower.Stats()
	count(followedMetric, moved)
	count(unpackedMetric, unpacked)
	gauge(followingMetric, float64(waiting))
	gauge(notFollowing, float64(len(s.Behind)))
	longest := 0.0
	for _, b := range s.Behind {
		longest = max(longest, b.Age)
	}
	gauge(notFollowingFor, longest)
	held := 0
	for _, b := range s.Behind {
		if b.Pack != "" {
			held++
		}
	}
	gauge(packsHeld, float64(held))
	_, objections := c.follower.Malformed()
	count(malformedPacks, objections)
	states, transactions, eldest := map[string]int{client.SessionOpen: 0, client.SessionBroken: 0, client.SessionSilent: 0, client.SessionDead: 0}, 0, 0.0
	for _, one := range s.Sessions {
		states[one.State]++
		transactions += one.Open
		eldest = max(eldest, one.Oldest)
	}
	for state, n := range states {
		gauge(sessionsMetric, float64(n), state)
	}
	gauge(sessionOpen, float64(transactions))
	gauge(sessionOldest, eldest)
	count(movesListed, c.list.Count())
	gauge(movesWritable, oneIf(s.MovesError == ""))
	connected, unread, unreadFor := map[bool]int{}, int64(0), 0.0
	for _, r := range s.Readers {
		connected[r.Connected]++
		unread, unreadFor = max(unread, r.Unread), max(unreadFor, r.Oldest)
	}
	gauge(movesReaders, float64(connected[true]), "yes")
	gauge(movesReaders, float64(connected[false]), "no")
	gauge(movesUnread, float64(unread))
	gauge(movesOldest, unreadFor)
	gauge(gerritMetric, oneIf(s.Gerrit != nil && s.Gerrit.State == client.GerritUnguarded))
	fault, lost := c.hookdir.State()
	gauge(hooksMetric, oneIf(fault != ""))
	count(hooksLost, lost)
	bytes, failures := c.follower.Traffic()
	count(followFailures, failures)
	unplaced := 0
	for _, f := range c.follower.Failures() {
		unplaced += f.Unplaced
	}
	gauge(unplacedRefs, float64(unplaced))
	count(unpackedBytes, bytes)
	for _, m := range s.PushMirrors {
		gauge(mirrorActive, oneIf(m.Site != ""), m.Name)
		if m.Pushes {
			longest := 0.0
			for _, b := range m.Behind {
				longest = max(longest, b.Age)
			}
			gauge(mirrorBehind, float64(len(m.Behind)), m.Name)
			gauge(mirrorFor, longest, m.Name)
		}
	}
	repositories, stored := c.survey.results()
	for state, n := range repositories {
		gauge(statesMetric, float64(n), state)
	}
	if stored != nil {
		gauge(storedPacks, float64(stored.Size))
		gauge(unusedPacks, float64(stored.UnusedSize))
	}
}

// rootGone reports whether the directory of the repositories is away, such as with its disk. The site's hooks alone are nothing.
func (d *Daemon) rootGone() bool {
	root := d.state.Config().Root
	if root == "" {
		return false
	}
	dir, err := os.Open(root)
	if err != nil {
		return true
	}
	defer dir.Close()
	entries, err := dir.ReadDir(2)
	if len(entries) == 0 && err == io.EOF || len(entries) == 1 && entries[0].Name() == config.HooksDir {
		return len(d.follower.Known()) > 0
	}
	return err != nil
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
