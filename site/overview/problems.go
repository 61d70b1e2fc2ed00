package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// intentPatience is how old an intent may be while its site's daemon runs, as in the alert
	// RefdbIntentOld.
	intentPatience = 5 * time.Minute
	// decidedPatience is how long a site may take to apply an operator's decision.
	decidedPatience = 30 * time.Second
	// lagPatience is how long a site may lack a change, as in the alert RefdbSiteLags.
	lagPatience = 10 * time.Minute
	// lockPatience is how long a lock may be held while other processes wait for it.
	lockPatience = 5 * time.Minute
)

const (
	siteStatus  = "refdbctl site status"
	startDaemon = "systemctl start refdb-site"
)

// stuckAt are the intents of one site that are stuck, and the decisions that it has not applied.
type stuckAt struct {
	site            string
	alive           bool
	pending, undone int
	oldest, decided driver.Intent
}

// summarizeIntents counts intents, and returns the stuck ones by site.
func summarizeIntents(projects []rows[driver.Intent], alive func(site string) bool) (v *Intents, stuck []stuckAt) {
	v = &Intents{Oldest: []Intent{}}
	bySite := map[string]*stuckAt{}
	at := func(i driver.Intent) *stuckAt {
		site, _, _ := strings.Cut(i.Owner, "/")
		if bySite[site] == nil {
			bySite[site] = &stuckAt{site: site, alive: alive(site)}
		}
		return bySite[site]
	}
	for _, r := range projects {
		v.More = v.More || r.more
		for _, i := range r.all {
			s := at(i)
			switch {
			case i.Decision == driver.Pending:
				v.Pending++
				v.OldestSeconds = max(v.OldestSeconds, i.Age.Seconds())
				v.Oldest = append(v.Oldest, Intent{Project: i.Project, Ref: i.Ref, Site: s.site, By: i.By, Seconds: i.Age.Seconds()})
				if i.Age > intentPatience || !s.alive {
					v.Stuck++
					s.pending++
					if s.oldest.Ref == "" || i.Age > s.oldest.Age {
						s.oldest = i
					}
				}
			case i.Decision != driver.Revoked:
				v.Undone++
				if i.Time.Add(i.Age).Sub(i.DecidedAt) > decidedPatience {
					s.undone++
					s.decided = i
				}
			}
		}
	}
	slices.SortStableFunc(v.Oldest, func(a, b Intent) int { return cmp.Compare(b.Seconds, a.Seconds) })
	v.Oldest = v.Oldest[:min(len(v.Oldest), listed)]
	for _, s := range bySite {
		stuck = append(stuck, *s)
	}
	slices.SortFunc(stuck, func(a, b stuckAt) int { return strings.Compare(a.site, b.site) })
	return v, stuck
}

// problems finds the problems in v, the most urgent first. If the locks on sites' names were not
// read, no site counts as unreachable. A frozen project comes last: somebody wants it so, and may
// have forgotten it.
func (v Overview) problems(a driver.Admission, sites []presence.Site, stuck []stuckAt, locksRead bool, frozen []driver.Project) (all []Problem) {
	add := func(code, site, command, format string, args ...any) {
		all = append(all, Problem{Code: code, Site: site, Command: command, Detail: fmt.Sprintf(format, args...)})
	}
	if v.Database != nil && !a.Admitted {
		v.notAdmitted(a, locksRead, add)
	}
	for _, s := range sites {
		waited := v.Database != nil && slices.Contains(v.Database.Waiting, s.Name) && !a.Admitted
		if locksRead && (s.Awaited() || s.Testified()) && !s.Alive() && !waited {
			add(Unreachable, s.Name, startDaemon, "%s", presence.UnreachableAdvice(s))
		}
	}
	for _, s := range stuck {
		s.find(add)
	}
	for _, s := range v.Sites {
		if s.Alive != nil && !*s.Alive {
			continue // it can't do anything about the rest
		}
		if len(s.Alarms) > 0 {
			add(Alarm, s.Name, siteStatus, "%s has found what the alerts are about that OPERATIONS.md lists as %s", s.Name, strings.Join(s.Alarms, ", "))
		}
		switch {
		case s.Lag == nil:
		case s.Lag.Unreadable:
			add(SiteLags, s.Name, siteStatus, "%s has not read changes that were pruned since: it has to compare all refs", s.Name)
		case s.Lag.Seconds > lagPatience.Seconds():
			add(SiteLags, s.Name, siteStatus, "%s has not read %s for %s", s.Name, lagging(*s.Lag), age(s.Lag.Seconds))
		}
		// A daemon of an earlier version does not say since when.
		if s.Behind > 0 && (s.BehindSeconds == 0 || s.BehindSeconds > client.BehindPatience.Seconds()) {
			add(Behind, s.Name, siteStatus, "at %s %s can't catch up%s", s.Name, number(s.Behind, "repository", "repositories"), oldest(s))
		}
	}
	if v.Locks != nil {
		for _, l := range v.Locks.Busiest {
			if !l.Reserved && !l.Stale && l.Seconds > lockPatience.Seconds() {
				add(LockAwaited, "", wire.CommandLine("refdbctl locks show", l.Project, l.Ref), "%s waiting for the lock on %s %s, which %s has held for %s",
					number(l.Waiters, "process is", "processes are"), l.Project, l.Ref, l.Owner, age(l.Seconds))
			}
		}
	}
	for _, p := range frozen {
		add(Frozen, "", wire.CommandLine("refdbctl project unfreeze", p.Project), "all pushes to %s are refused, as it is frozen: %s", p.Project, p.Freeze)
	}
	return all
}

// notAdmitted finds why nothing can be written.
func (v Overview) notAdmitted(a driver.Admission, locksRead bool, add func(code, site, command, format string, args ...any)) {
	const status = "refdbctl recover --status"
	if a.Halted {
		add(LostChanges, "", status, "nothing can be written: the database has lost %s that sites know of: an operator has to decide about them with refdbctl recover", number(a.Lost, "change", "changes"))
	}
	for _, name := range v.Database.Waiting {
		i := slices.IndexFunc(v.Sites, func(s Site) bool { return s.Name == name })
		switch {
		case !locksRead:
			add(NotCompared, name, siteStatus, "nothing can be written before %s has compared the database's new server with what it knows; whether its daemon runs could not be read", name)
			continue
		case i >= 0 && *v.Sites[i].Alive:
			add(NotCompared, name, siteStatus, "nothing can be written before %s has compared the database's new server with what it knows: its daemon runs, and has not done so yet", name)
			continue
		}
		add(NotCompared, name, startDaemon, "nothing can be written before %s has compared the database's new server with what it knows, and its daemon does not run, or can't reach the database; "+
			"if the site won't be back soon: `refdbctl recover --without %s --reason TEXT`", name, wire.ShellWord(name))
	}
	if !a.Halted && len(v.Database.Waiting) == 0 {
		add(NotAdmitted, "", status, "nothing can be written: %s", a.Err())
	}
}

// find finds problems with the intents of a site.
func (s stuckAt) find(add func(code, site, command, format string, args ...any)) {
	example := s.oldest.Project + " " + s.oldest.Ref
	switch {
	case s.pending == 0:
	case s.alive:
		add(IntentStuck, s.site, siteStatus, "pushes to %s, announced by %s, have not ended, the oldest for %s (%s): other sites can't move these refs", number(s.pending, "ref", "refs"), s.site, age(s.oldest.Age.Seconds()), example)
	default:
		add(IntentStuck, "", "refdbctl locks list --intents --owner "+wire.ShellWord(s.site), "pushes to %s, announced by %s, have not ended, the oldest for %s (%s), and the site's daemon does not run, or can't reach the database: "+
			"it ends them once it does; if the site is gone for good: `%s`", number(s.pending, "ref", "refs"), s.site, age(s.oldest.Age.Seconds()), example, presence.RetireCommand(s.site))
	}
	if s.undone > 0 {
		add(IntentDecided, s.site, "refdbctl site repair", "%s has not applied %s about its pushes, such as %s %s", s.site, number(s.undone, "operator's decision", "operators' decisions"), s.decided.Project, s.decided.Ref)
	}
}

func lagging(l Lag) string {
	if l.More {
		return fmt.Sprintf("more than %d changes", l.Changes)
	}
	return number(l.Changes, "change", "changes")
}

// oldest names the project that has been behind for longest.
func oldest(s Site) string {
	switch {
	case len(s.BehindProjects) == 0:
		return ""
	case s.BehindSeconds == 0:
		return ", such as " + s.BehindProjects[0]
	}
	return fmt.Sprintf(", %s for %s", s.BehindProjects[0], age(s.BehindSeconds))
}

func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func age(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
