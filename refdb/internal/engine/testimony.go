package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A testimony is given in two reports: the first one bars the silent site, and the second one makes
// it away. In between, while the silent site can't learn of further changes, the testifier notes
// everything that the site may know. rules.Report contains all decisions of the database. A
// testimony is begun once: any witness that sees its word may note the changes for it, and give it.

// askAgain is the interval at which a testifier checks whether transactions have ended.
const askAgain = 100 * time.Millisecond

// Testify makes this witness hold a testimony about a site, so that no server waits for that site.
// It begins a testimony, or joins that of another witness. noted returns once the journal has all
// changes up to a position. Testify returns false if the site is not live at this server, or has
// come back.
//
// Testify is safe whatever the state of the site. After an error any witness may call it again.
func (e *Engine) Testify(ctx context.Context, site string, noted func(context.Context, driver.Position) error) (testified bool, err error) {
	a, err := e.Admission(ctx)
	if err == nil && a.Witness(site).Word.IsZero() {
		a, err = e.compareAnd(ctx, driver.Report{Closes: []string{site}})
	}
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return false, err
	}
	w := a.Witness(site)
	if !w.Closing() && !w.Testified() {
		return false, nil
	}
	t := driver.Testimony{Site: site, Word: w.Word, Given: w.Testified()}
	if t.Intents, err = e.intentsOf(ctx, t); err != nil {
		return false, err
	}
	// After the intents were listed: an intent that has ended since then is among the changes.
	if err := e.noteHistory(ctx, t, a.Server, noted); err != nil {
		return false, err
	}
	if held, err := e.hold(ctx, t); err != nil || !held || t.Given {
		return held, err
	}
	if a, err = e.compareAnd(ctx, driver.Report{Testimonies: []driver.Testimony{t}}); err != nil {
		return false, err
	}
	w = a.Witness(site)
	return w.Testified() && w.Word.Equal(t.Word), nil
}

// intentsOf lists the pending intents of t's site. An intent that was resolved is not among them: its
// change is in the history, or an operator has dropped it.
func (e *Engine) intentsOf(ctx context.Context, t driver.Testimony) (known []driver.Known, err error) {
	filter := driver.IntentFilter{Owner: t.Site}
	for i, err := range Pages(ctx, e, "intents", func(d driver.Driver, after driver.IntentCursor) ([]driver.Intent, driver.IntentCursor, error) {
		page, err := d.Intents(ctx, driver.IntentQuery{IntentFilter: filter, After: after, Limit: PageSize})
		return page.Intents, page.Next, err
	}) {
		if err != nil {
			return nil, err
		}
		known = append(known, driver.Known{
			Project: i.Project, Ref: i.Ref, Old: i.Old, New: i.New, Op: i.Op, Owner: i.Owner, By: i.By, Token: i.Token, Agent: i.Agent, At: i.Time,
			Word: t.Word,
		})
	}
	return known, nil
}

// noteHistory waits until the journal has all changes that had been committed when t's site was barred.
func (e *Engine) noteHistory(ctx context.Context, t driver.Testimony, server string, noted func(context.Context, driver.Position) error) error {
	for {
		s, err := Retry(ctx, e, func(d driver.Driver) (driver.HistoryState, error) { return d.HistoryState(ctx) })
		if err != nil {
			return fmt.Errorf("reading the history: %w", err)
		}
		if !s.Admitted {
			return driver.ErrNotAdmitted // it may lack changes of the server that has barred the site
		}
		if s.Ended >= e.begun.by(t, server, s.Begun) {
			return noted(ctx, s.Upto)
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return fmt.Errorf("waiting for transactions of other programs: %w: `refdbctl doctor` names them", ctx.Err())
		}
	}
}

// begun contains, by site, an upper bound of the transactions that had begun when this process
// first saw a testimony. It outlives a call of Testify: otherwise, if some long transaction is
// always running, each call would wait for another one.
type begun struct {
	mu    sync.Mutex
	sites map[string]begunBy
}

type begunBy struct {
	word     time.Time
	server   string
	position driver.Position
}

// by returns the largest position of a change whose transaction had begun when t was first seen at
// the server. now is the largest such position at this moment.
func (b *begun) by(t driver.Testimony, server string, now driver.Position) driver.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.sites[t.Site]; was.word.Equal(t.Word) && was.server == server {
		return was.position
	}
	if b.sites == nil {
		b.sites = make(map[string]begunBy)
	}
	b.sites[t.Site] = begunBy{t.Word, server, now}
	return now
}

// hold keeps t if the database's row still has its word.
func (e *Engine) hold(ctx context.Context, t driver.Testimony) (held bool, err error) {
	if err := e.comparisons.enter(ctx); err != nil {
		return false, err
	}
	defer e.comparisons.leave()
	a, err := e.Admission(ctx)
	if err == nil && (!a.May(e.Site) || a.Server != e.comparisons.outcome.Server) {
		// Marks of a server that this process has not compared would replace later ones.
		err = cmp.Or(a.Err(), error(driver.ErrNotAdmitted))
	}
	if err != nil || !a.Witness(t.Site).Word.Equal(t.Word) {
		return false, err
	}
	all, err := e.Journal.Testimonies()
	if err != nil {
		return false, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(other driver.Testimony) bool { return other.Site == t.Site })
	// Marks first: a testimony that contradicts the marks doesn't count.
	if err := e.Journal.SetMarks(a.Marks()); err != nil {
		return false, err
	}
	return true, e.Journal.SetTestimonies(append(all, t))
}

// lookForOthers fills in the fields of a report on behalf of other sites: the testimonies that were
// given, and their intents that the database lacks. It is unknown whether the moves of these
// intents were made.
func (e *Engine) lookForOthers(ctx context.Context, r *driver.Report, held []driver.Testimony) error {
	for _, t := range held {
		if !t.Given {
			continue
		}
		r.Testimonies = append(r.Testimonies, t)
		lost, err := e.missing(ctx, r, t.Intents)
		if err != nil {
			return err
		}
		r.Missing = append(r.Missing, lost...)
	}
	return nil
}

// learnTestimonies keeps the testimonies whose words an admitted server has, and learns which of them
// were given.
func (e *Engine) learnTestimonies(a driver.Admission, held []driver.Testimony) error {
	var kept []driver.Testimony
	changed := false
	for _, t := range held {
		w := a.Witness(t.Site)
		if !w.Word.Equal(t.Word) || !w.Closing() && !w.Testified() {
			changed = true
			continue
		}
		changed = changed || !t.Given && w.Testified()
		t.Given = t.Given || w.Testified()
		kept = append(kept, t)
	}
	if !changed {
		return nil
	}
	return e.Journal.SetTestimonies(kept)
}

// Excuse makes awaited sites away, which the policy [driver.Synchronous] permits.
func (e *Engine) Excuse(ctx context.Context, sites []string) (driver.Admission, error) {
	return e.compareAnd(ctx, driver.Report{Excused: sites})
}

// SetPolicy sets the policy, and notes it.
func (e *Engine) SetPolicy(ctx context.Context, p driver.Policy) (driver.Admission, error) {
	if err := e.SchemaError(); err != nil {
		return driver.Admission{}, err
	}
	a, err := RetryPlain(ctx, e, func(d driver.Driver) (driver.Admission, error) {
		a, err := d.SetPolicy(ctx, p)
		return a, Repeatable(err)
	})
	if err != nil {
		return a, fmt.Errorf("setting the policy: %w", err)
	}
	return a, e.Journal.SetPolicy(a.Policy)
}
