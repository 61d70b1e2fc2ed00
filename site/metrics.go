package site

import (
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// daemonMetrics are what a daemon counts for metrics alone.
type daemonMetrics struct {
	refusals *prometheus.CounterVec
	hooks    *prometheus.HistogramVec

	announcements prometheus.Histogram
	movesResets   prometheus.Counter
}

func newDaemonMetrics() daemonMetrics {
	m := daemonMetrics{
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refdb_site_refusals_total",
			Help: "Answers to hooks that refused, by reason. One push that is refused ref by ref has one for each.",
		}, []string{"reason"}),
		hooks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refdb_site_hook_duration_seconds", Help: "How long hooks waited for the daemon's answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 3, 4, 5},
		}, []string{"hook"}),
		announcements: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "refdb_site_announcement_duration_seconds", Help: "How long guards with sessions waited for the answer to an announcement.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 3, 4, 5},
		}),
		movesResets: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "refdb_site_moves_resets_total", Help: "How often a reader of the list of moves had to compare everything.",
		}),
	}
	for _, r := range refusal.Reasons {
		m.refusals.WithLabelValues(string(r))
	}
	return m
}

// answered notes how long a hook waited. What it calls its state is whatever its process says.
func (m daemonMetrics) answered(state string, took time.Duration) {
	switch state {
	case wire.StatePrepared, wire.StateCommitted, wire.StateAborted, wire.StatePreReceive, wire.StateUpdate:
		m.hooks.WithLabelValues(state).Observe(took.Seconds())
	}
}

var (
	infoMetric         = describe("info", "1, with the daemon's version.", "version")
	startedMetric      = describe("start_time_seconds", "When the daemon started, in seconds since the epoch.")
	servingMetric      = describe("serving", "Whether the daemon holds its site's name and knows what its predecessor left; else it refuses pushes.")
	databaseMetric     = describe("database_up", "Whether the database answered when it was last asked, some ten seconds ago at most.")
	rootMetric         = describe("root_gone", "1 if site.root can't be read, or is empty although repositories were followed there; 0 otherwise, also without a root.")
	stuckMetric        = describe("stuck_refs", "Refs whose pushes can't be settled: they need an operator.")
	activeMetric       = describe("pushes_active", "Processes of git that have announced moves of refs and not ended them.")
	intentsMetric      = describe("intents_pending", "Intents of this site that stand in the database: each keeps a ref locked at all sites.")
	oldestMetric       = describe("intent_oldest_seconds", "The age of the oldest of these; 0 without any.")
	transactionsMetric = describe("transactions_total", "Transactions of git that were let through (accepted) or refused, those that move nothing guarded "+
		"included. A push that the hooks before refuse begins none.", "result")
	refsMetric = describe("refs_total", "Refs of pushes: those that took their new value (moved), that were let through and kept the old one (kept), "+
		"that were refused (refused).", "result")
	wouldRefuseMetric = describe("would_refuse_total", "Transactions of git that were let through and would have been refused, were it not for their projects' mode.")
	alarmsMetric      = describe("alarms_total", "Alarms: a ref's push can't be settled, a ref has a value that the database never had, the site's Gerrit runs without the guard, "+
		"a guard that something waits for has no session, a followed repository is gone.")
	deathsMetric    = describe("pusher_deaths_total", "Processes of git, and guards, that ended with something left to settle.")
	heededMetric    = describe("decisions_heeded_total", "Decisions of operators that were carried out in the repositories.")
	failuresMetric  = describe("database_failures_total", "Requests of the daemon that the database failed.")
	comparedMetric  = describe("repositories", "Repositories of the site that were compared with the database.")
	behindMetric    = describe("repositories_behind", "Repositories with refs that have another value in the database, while nobody moves them.")
	refsBehind      = describe("refs_behind", "How many refs these are, of all repositories.")
	lagMetric       = describe("lag_seconds", "How long the database has had a value that is not here, of the ref that waits longest; 0 without any.")
	unreadMetric    = describe("repositories_not_compared", "Repositories that could not be compared the last time.")
	lookedMetric    = describe("lag_look_age_seconds", "How long ago the repository that was not compared for longest was compared.")
	followedMetric  = describe("followed_refs_total", "Refs that were moved to what other sites made them, with the objects from the database.")
	unpackedMetric  = describe("packs_unpacked_total", "Packs of other sites that were unpacked.")
	followingMetric = describe("repositories_following", "Repositories that are being brought to what the database holds, or wait for that.")
	notFollowing    = describe("repositories_not_following", "Repositories among them that the last attempt did not bring there.")
	notFollowingFor = describe("not_following_seconds", "How long the one among these has been behind that has been for longest; 0 without any.")
	unplacedRefs    = describe("refs_not_placed", "Refs that the last attempt to bring a repository to what the database holds could not move, because git or a hook refused.")
	statesMetric    = describe("repositories_state", "Repositories of projects that are to be guarded: guarded; open, if nobody has put them under guard; disabled, if nothing is to "+
		"guard them; bypassed, if they are under guard and git is not led to the hooks; unknown, if they can't be looked at. As of some five minutes ago at most.", "state")
	storedPacks    = describe("packs_stored_bytes", "Bytes of the packs in the database that pushes have used, of all projects and sites.")
	unusedPacks    = describe("packs_unused_bytes", "Bytes of the packs in the database that no push has used yet, of all projects and sites.")
	packsHeld      = describe("packs_held", "Repositories that a pack of another site holds up because it can't be unpacked.")
	malformedPacks = describe("packs_malformed_total", "Packs of other sites with an object to whose form git's fsck objects. They were unpacked.")
	followFailures = describe("follow_failures_total", "Attempts to bring a repository to what the database holds that failed.")
	unpackedBytes  = describe("packs_unpacked_bytes_total", "Bytes of the packs of other sites that were unpacked.")
	sessionsMetric = describe("sessions", "Guards with a session (open), that live without one (broken; silent if that has lasted for a minute and something waits for them), "+
		"or that have died and left something that is being settled (dead).", "state")
	gerritMetric = describe("gerrit_unguarded", "1 if the site's Gerrit (site.gerrit) has run for half a minute without the guard: it moves refs that other sites don't hear of. "+
		"0 otherwise, also without a Gerrit.")
	hooksMetric   = describe("hooks_damaged", "1 while the directory of the site's hooks is damaged: pushes are refused, or not guarded. 0 otherwise.")
	hooksLost     = describe("hooks_damaged_total", "How often the directory of the site's hooks was found damaged. Unless the daemon says otherwise, it has restored it.")
	sessionOpen   = describe("session_transactions", "Transactions of guards that are not settled.")
	sessionOldest = describe("session_transaction_oldest_seconds", "The age of the oldest of these; 0 without any.")
	movesListed   = describe("moves_total", "Entries of the list of moves, which guards that keep indexes read.")
	movesWritable = describe("moves_writable", "Whether moves can be listed; else guards' indexes do not follow.")
	movesReaders  = describe("moves_readers", "Guards that read the list of moves, with a connection (yes) or without one (no).", "connected")
	movesUnread   = describe("moves_unread_bytes", "How much of the list is unread, by the guard that has read least of it.")
	movesOldest   = describe("moves_unread_oldest_seconds", "The age of the oldest entry of the list that a guard has not read; 0 without any. Of a server that has never read: since "+
		"its first session.")
	daemonMeasures = [...]*prometheus.Desc{
		infoMetric, startedMetric, servingMetric, databaseMetric, rootMetric, stuckMetric, activeMetric, intentsMetric, oldestMetric, transactionsMetric, refsMetric,
		wouldRefuseMetric, alarmsMetric, deathsMetric, heededMetric, failuresMetric, comparedMetric, behindMetric, refsBehind, lagMetric, unreadMetric, lookedMetric, followedMetric, unpackedMetric, followingMetric,
		notFollowing, notFollowingFor, unplacedRefs, followFailures, unpackedBytes, sessionsMetric, sessionOpen, sessionOldest,
		movesListed, movesWritable, movesReaders, movesUnread, movesOldest, gerritMetric, hooksMetric, hooksLost, packsHeld, malformedPacks, statesMetric, storedPacks, unusedPacks,
	}
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("refdb_site_"+name, help, labels, nil)
}

// A collector collects a daemon's metrics. It asks no database, and names nothing.
type collector struct{ *Daemon }

func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	c.metrics.refusals.Describe(descriptions)
	c.metrics.hooks.Describe(descriptions)
	c.metrics.announcements.Describe(descriptions)
	c.metrics.movesResets.Describe(descriptions)
	for _, d := range daemonMeasures {
		descriptions <- d
	}
}

func (c collector) Collect(metrics chan<- prometheus.Metric) {
	c.metrics.refusals.Collect(metrics)
	c.metrics.hooks.Collect(metrics)
	c.metrics.announcements.Collect(metrics)
	c.metrics.movesResets.Collect(metrics)
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
	gauge(stuckMetric, float64(len(s.Stuck)))
	gauge(activeMetric, float64(len(s.Pushes)))
	open, oldest := c.open.Count()
	gauge(intentsMetric, float64(open))
	gauge(oldestMetric, oldest.Seconds())
	count(transactionsMetric, s.Counters.Prepared, "accepted")
	count(transactionsMetric, s.Counters.Refused, "refused")
	count(refsMetric, s.Counters.Updated, "moved")
	count(refsMetric, s.Counters.Dropped, "kept")
	count(refsMetric, c.counters.refusedRefs.Load(), "refused")
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
	fault, lost := c.hooks.State()
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
	root := d.config.Load().Root
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
