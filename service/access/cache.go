package access

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// ValidFor is how long the cache decides by what it has read.
	ValidFor = 10 * time.Second

	refreshEvery = 3 * time.Second
	refreshLimit = 5 * time.Second // for one attempt
	followAgain  = 10 * time.Second
)

// A Cache has all tokens and rules in memory, so that strangers cost no request to the database, and
// can't delay requests of clients. [Cache.Run] keeps the cache current: it reads the database moments
// after the feed reports a change, and every few seconds. The cache decides nothing by tokens and
// rules that were read more than ValidFor ago.
type Cache struct {
	db      *refdb.DB
	log     *slog.Logger
	current atomic.Pointer[snapshot]
	failing bool          // the last refresh failed; only refresh uses it
	keyless chan struct{} // signals that the key of sessions is missing; nil if nobody needs one
}

// A snapshot has the tokens and rules as of one moment.
type snapshot struct {
	began  time.Time // before the first request, by this machine's clock
	now    time.Time // the database's, read after began
	key    refdb.StateKey
	tokens map[string]Token  // by ID
	rules  map[string][]Rule // by subject
	seal   *seal             // of sessions; nil if there is no key
}

// NewCache returns a cache that is stale until Run has read the database.
func NewCache(db *refdb.DB, log *slog.Logger) *Cache { return &Cache{db: db, log: log} }

// Run keeps the cache current until ctx ends. It also removes what confirmations have left.
func (c *Cache) Run(ctx context.Context) {
	wake := make(chan struct{}, 1)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { c.follow(ctx, wake) })
	beside.Go(func() { c.sweep(ctx) })
	if c.keyless != nil {
		beside.Go(func() { c.keepKey(ctx, wake) })
	}
	for {
		c.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-time.After(refreshEvery):
		}
	}
}

// follow wakes Run after each change of the records.
func (c *Cache) follow(ctx context.Context, wake chan<- struct{}) {
	for {
		c.followOnce(ctx, wake)
		select {
		case <-ctx.Done():
			return
		case <-time.After(followAgain):
		}
	}
}

func (c *Cache) followOnce(ctx context.Context, wake chan<- struct{}) {
	end, err := c.db.HistoryEnd(ctx)
	if err != nil {
		return // refresh reports the reason
	}
	for changes, err := range c.db.Changes(ctx, refdb.ChangeQuery{Project: project, Prefix: recordPrefix, After: end}) {
		if err != nil {
			return
		}
		if len(changes.Changes) > 0 {
			signal(wake)
		}
	}
}

func (c *Cache) refresh(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, refreshLimit)
	defer cancel()
	next, unreadable, err := c.read(limited)
	switch {
	case err == nil:
		c.current.Store(next)
		if c.keyless != nil && next.seal == nil {
			signal(c.keyless)
		}
		if unreadable > 0 {
			c.log.WarnContext(ctx, "some tokens or rules can't be read, and allow nothing: a later version may have written them", "count", unreadable)
		}
	case ctx.Err() == nil && !c.failing:
		c.log.WarnContext(ctx, "the tokens and rules can't be read: after some seconds all requests are refused", "class", refdb.ClassOf(err).String())
	}
	c.failing = err != nil
}

func (c *Cache) read(ctx context.Context) (next *snapshot, unreadable int, err error) {
	next = &snapshot{began: time.Now()}
	if next.key, err = c.db.StateKey(ctx, project); err != nil {
		return nil, 0, err
	}
	if next.now, err = c.db.Now(ctx); err != nil {
		return nil, 0, err
	}
	if last := c.current.Load(); last != nil && next.key.Settled() && last.key == next.key {
		next.tokens, next.rules, next.seal = last.tokens, last.rules, last.seal
		return next, 0, nil
	}
	all, err := ReadRecords(ctx, c.db)
	if err != nil {
		return nil, 0, err
	}
	next.tokens, next.rules = make(map[string]Token, len(all.Tokens)), map[string][]Rule{}
	for _, t := range all.Tokens {
		next.tokens[t.ID] = t
	}
	for _, r := range all.Rules {
		next.rules[r.Subject] = append(next.rules[r.Subject], r)
	}
	if c.keyless != nil {
		if next.seal, err = readSeal(ctx, c.db); err != nil {
			return nil, 0, err
		}
	}
	return next, all.Unreadable, nil
}

// Age returns how long ago a time of this machine was. It is the longer of two clocks' times: one clock
// stands still while the machine is suspended, the other one may be set.
func Age(at time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

// age returns how long ago the snapshot was read.
func (s *snapshot) age() time.Duration { return Age(s.began) }

// time returns the database's time. That was read after the snapshot began, so the sum is never behind
// the database's clock.
func (s *snapshot) time() time.Time { return s.now.Add(s.age()) }

// fresh returns the snapshot to decide by.
func (c *Cache) fresh() (*snapshot, error) {
	s := c.current.Load()
	if s == nil || s.age() >= ValidFor {
		return nil, ErrStale
	}
	return s, nil
}

// Ready returns nil if the cache is current, else ErrStale.
func (c *Cache) Ready() error {
	_, err := c.fresh()
	return err
}

// Now returns the database's time, or ErrStale. It makes no request to the database. The time is never
// behind the database's clock.
func (c *Cache) Now() (time.Time, error) {
	s, err := c.fresh()
	if err != nil {
		return time.Time{}, err
	}
	return s.time(), nil
}

// An Identity is a subject that has shown a credential.
type Identity struct {
	Subject string
	valid   func(*snapshot) error // ErrUnauthenticated once the credential has expired or was revoked
	cache   *Cache
}

// Authenticate returns the identity that the token with that text names, or ErrUnauthenticated or
// ErrStale.
func (c *Cache) Authenticate(text string) (Identity, error) {
	id, ok := idOf(text)
	if !ok {
		return Identity{}, ErrUnauthenticated
	}
	s, err := c.fresh()
	if err != nil {
		return Identity{}, err
	}
	t, err := s.valid(id)
	if err != nil {
		return Identity{}, err
	}
	return Identity{t.Subject, standing(id), c}, nil
}

// standing returns a function that says whether a token is valid.
func standing(id string) func(*snapshot) error {
	return func(s *snapshot) error {
		_, err := s.valid(id)
		return err
	}
}

// Identify returns the identity of a subject that has shown a credential which the database does not
// have. The credential is valid at a time of the database while valid returns nil; otherwise the error
// wraps ErrUnauthenticated. The error of Identify is valid's, or ErrStale.
func (c *Cache) Identify(subject string, valid func(now time.Time) error) (Identity, error) {
	i := Identity{subject, func(s *snapshot) error { return valid(s.time()) }, c}
	if err := i.Err(); err != nil {
		return Identity{}, err
	}
	return i, nil
}

// valid returns the token with that ID, or ErrUnauthenticated if it has expired or was revoked.
func (s *snapshot) valid(id string) (Token, error) {
	t, ok := s.tokens[id]
	if !ok || !s.time().Before(t.Expires) {
		return Token{}, ErrUnauthenticated
	}
	return t, nil
}

// Err returns nil while the identity stands. Otherwise the error is ErrUnauthenticated, if the
// credential has expired or was revoked, or ErrStale. A call that lasts, such as a stream, asks again
// every few seconds, and ends with the error; [Identity.May] asks the same beside the rules.
func (i Identity) Err() error {
	_, err := i.snapshot()
	return err
}

// snapshot returns the tokens and rules to decide by, if the identity stands.
func (i Identity) snapshot() (*snapshot, error) {
	if i.cache == nil {
		return nil, ErrUnauthenticated
	}
	s, err := i.cache.fresh()
	if err != nil {
		return nil, err
	}
	return s, i.valid(s)
}

// HasRules returns nil if there is any rule for the subject. Otherwise the error is ErrDenied or
// ErrStale.
func (i Identity) HasRules() error {
	if i.cache == nil {
		return ErrDenied
	}
	s, err := i.cache.fresh()
	if err == nil && len(s.rules[i.Subject]) == 0 {
		err = fmt.Errorf("%w: the subject %s has no rule", ErrDenied, i.Subject)
	}
	return err
}

// rules returns the rules of the identity that give a right in a project.
func (i Identity) rules(right Right, project string) ([]Rule, error) {
	s, err := i.snapshot()
	if err != nil {
		return nil, err
	}
	var rules []Rule
	for _, r := range s.rules[i.Subject] {
		if r.Right.implies(right) && r.Projects.Matches(project) && !Reserved(project) {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%w: the subject %s has no right to %s in this project", ErrDenied, i.Subject, right)
	}
	return rules, nil
}

// May returns nil if the subject has a right on all refs of a project that are given, by the rules
// as they are now and with the token as it is now. Otherwise the error is ErrDenied, ErrStale or
// ErrUnauthenticated.
func (i Identity) May(right Right, project string, refs ...string) error {
	rules, err := i.rules(right, project)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if !slices.ContainsFunc(rules, func(r Rule) bool { return r.Refs.Matches(ref) }) {
			return fmt.Errorf("%w: the subject %s has no right to %s one of these refs", ErrDenied, i.Subject, right)
		}
	}
	return nil
}

// MayAll returns nil if the subject has a right on all refs of all projects, by one rule. The error is
// as from [Identity.May].
func (i Identity) MayAll(right Right) error {
	s, err := i.snapshot()
	if err != nil {
		return err
	}
	for _, r := range s.rules[i.Subject] {
		if r.Right.implies(right) && r.Projects == All && r.Refs == All {
			return nil
		}
	}
	return fmt.Errorf("%w: the subject %s has no right to %s all refs of all projects", ErrDenied, i.Subject, right)
}

// Projects returns the patterns of the projects in which the subject has a right on some refs, in byte
// order. Several may select the same project: see [Disjoint]. The error is as from [Identity.May], but it
// is no error to have no right.
func (i Identity) Projects(right Right) ([]Pattern, error) {
	s, err := i.snapshot()
	if err != nil {
		return nil, err
	}
	var all []Pattern
	for _, r := range s.rules[i.Subject] {
		if r.Right.implies(right) {
			all = append(all, r.Projects)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// A Selection selects refs: the one of that name or, if Below is set, all whose names start with it.
type Selection struct {
	Name  string
	Below bool
}

// Selected returns selections of those refs of a project below a prefix on which the subject has a
// right. No ref is selected twice, and the selections are in the order of their refs. The error is as
// from [Identity.May].
func (i Identity) Selected(right Right, project, prefix string) ([]Selection, error) {
	rules, err := i.rules(right, project)
	if err != nil {
		return nil, err
	}
	var all []Selection
	for _, r := range rules {
		start, below := r.Refs.Prefix()
		switch {
		case !below && strings.HasPrefix(string(r.Refs), prefix):
			all = append(all, Selection{Name: string(r.Refs)})
		case below && strings.HasPrefix(prefix, start):
			return []Selection{{prefix, true}}, nil
		case below && strings.HasPrefix(start, prefix):
			all = append(all, Selection{start, true})
		}
	}
	slices.SortFunc(all, func(a, b Selection) int { return strings.Compare(a.Name, b.Name) })
	var distinct []Selection
	for _, next := range all {
		if n := len(distinct); n > 0 {
			if last := distinct[n-1]; next == last || last.Below && strings.HasPrefix(next.Name, last.Name) {
				continue
			}
		}
		distinct = append(distinct, next)
	}
	return distinct, nil
}
