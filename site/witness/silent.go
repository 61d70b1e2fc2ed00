package witness

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// testifyAgain is the pause after a testimony failed.
const testifyAgain = 10 * time.Second

// KeepTestifying looks for silent sites until ctx ends, and testifies about them, so that no server of
// the database waits for them. It looks again when the next site may become silent, and during an
// outage.
func (w *Witness) KeepTestifying(ctx context.Context) {
	var seen state
	var looked time.Time
	for next := time.Duration(0); pause.For(ctx, compareAgain); {
		if time.Since(looked) < next && !w.State.InOutage() {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, compareEvery)
		next = w.attend(limited, &seen)
		cancel()
		looked = time.Now()
	}
}

// A state is the state of the database's server, and since when this process has found it unchanged.
type state struct {
	server   string
	admitted bool
	since    time.Time
}

func (s *state) see(a driver.Admission) {
	if now := (state{a.Server, a.Admitted, s.since}); now != *s {
		*s = state{a.Server, a.Admitted, time.Now()}
	}
}

// attend looks once at the other sites, and testifies about silent ones or excuses them. It returns
// the time after which it is to be called again.
func (w *Witness) attend(ctx context.Context, seen *state) (next time.Duration) {
	a, err := w.admission(ctx)
	var sites []presence.Site
	if err == nil {
		sites, err = presence.Witnesses(ctx, w.DB, a)
	}
	if err != nil {
		w.unreachable.Store(nil)
		*seen = state{}
		return compareAgain
	}
	seen.see(a)
	var own *refdb.LockInfo
	var others []presence.Site
	for _, s := range sites {
		if s.Name == w.State.Config().Site {
			own = s.Lock
		} else {
			others = append(others, s)
		}
	}
	unreachable := presence.Unreachable(others)
	w.unreachable.Store(&unreachable)
	switch {
	case !a.Admitted && !a.Halted && a.Policy.Policy == driver.Synchronous:
		w.excuse(ctx, a, others, time.Since(seen.since))
	case own != nil && a.May(w.State.Config().Site) && w.State.Presence.Lost() == nil: // a site without the lock on its name may be silent itself
		return w.testify(ctx, *own, others, time.Since(seen.since))
	}
	return compareAgain
}

// testify testifies about silent sites, and joins the testimonies of other sites. admitted is the time
// for which this process has seen the server admitted: before that no site could beat.
func (w *Witness) testify(ctx context.Context, own refdb.LockInfo, others []presence.Site, admitted time.Duration) (next time.Duration) {
	held, err := w.DB.Recovery().Testimonies()
	if err != nil {
		return testifyAgain
	}
	now := own.Heartbeat.Add(own.Age)
	next = compareEvery
	var silent []presence.Site
	for _, s := range others {
		age, limit := now.Sub(s.Seen()), presence.SilenceLimit(s)
		switch {
		case s.Witness.Testified():
			if !slices.ContainsFunc(held, func(t driver.Testimony) bool { return t.Site == s.Name && t.Given && t.Word.Equal(s.Witness.Word) }) {
				silent = append(silent, s)
			}
		case !s.Awaited():
		case age > limit && admitted > limit:
			silent = append(silent, s)
		default:
			next = min(next, max(limit-age, limit-admitted, compareAgain))
		}
	}
	if len(silent) == 0 {
		return next
	}
	abouts, err := presence.Abouts(ctx, w.DB)
	if err != nil || !w.read.caughtUp() {
		return compareAgain
	}
	for _, s := range silent {
		if !abouts[s.Name].Testifies() {
			continue
		}
		switch testified, err := w.DB.Recovery().Testify(ctx, s.Name, w.read.wait); {
		case err != nil:
			reason := "see `refdbctl site status`"
			if errors.Is(err, context.DeadlineExceeded) {
				reason = "a transaction of another program may take long: see `refdbctl doctor`"
			}
			w.Logger.WarnContext(ctx, "a site is silent, and this one could not testify about it; trying again: "+reason, "class", refdb.ClassOf(err).String())
			next = testifyAgain
		case testified:
			w.Logger.InfoContext(ctx, "a site is silent, and this one has testified about it: no server of the database waits for that site: see `refdbctl sites list`")
		}
	}
	return next
}

// excuse makes the sites away that the policy does not wait for. replaced is the time for which this
// process has seen that the server is not admitted. No site beats at such a server.
func (w *Witness) excuse(ctx context.Context, a driver.Admission, others []presence.Site, replaced time.Duration) {
	var newest time.Time
	for _, s := range others {
		if last := s.Seen(); last.After(newest) {
			newest = last
		}
	}
	if own := a.Witness(w.State.Config().Site).Seen; own.After(newest) {
		newest = own
	}
	var names []string
	for _, s := range others {
		limit := presence.SilenceLimit(s)
		if s.Witness.Awaited(a.Server) && (newest.Sub(s.Seen()) > limit || replaced > limit) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	if a, err := w.DB.Recovery().Excuse(ctx, names); err == nil && a.Admitted {
		w.Logger.WarnContext(ctx, "the database's server is admitted without sites that have not compared it, as the policy says: see `refdbctl sites list`", "sites", len(names))
	}
}
