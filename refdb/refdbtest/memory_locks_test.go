package refdbtest_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

func (d *connection) standing(k key) (lockRow, bool) {
	row, ok := d.locks[k]
	row.Age = now().Sub(row.Heartbeat)
	if d.bug == "all stale after 30 s" || d.bug == "intents go stale" && row.Intended() {
		row.StaleAfter = driver.DefaultStaleAfter
	}
	if d.bug == "future is stale" && row.Age < 0 {
		row.StaleAfter = -1 << 62
	}
	return row, ok
}

func anyFresh(holders []driver.LockInfo) bool {
	return slices.ContainsFunc(holders, func(l driver.LockInfo) bool { return !l.Stale() })
}

// found returns the locks on refs: those that carry an owner's nonce, and the others.
func (d *connection) found(project string, refs []string, owner, nonce string) (own, holders []driver.LockInfo) {
	for _, ref := range refs {
		row, ok := d.standing(key{project, ref})
		switch {
		case ok && row.of(owner, nonce, d.bug) && d.bug != "no adoption" || ok && row.Owner == owner && d.bug == "adopts by owner":
			own = append(own, row.LockInfo)
		case ok:
			holders = append(holders, row.LockInfo)
		}
	}
	return own, holders
}

// of reports whether the acquisition of that owner and nonce took the row.
func (row lockRow) of(owner, nonce, bug string) bool {
	return row.nonce == nonce && (row.Owner == owner || bug == "nonce of any owner")
}

func (d *connection) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	end, err := d.beginWrite(ctx, "Acquire")
	if err != nil {
		return driver.Acquired{}, err
	}
	defer end()
	own, _ := d.found(r.Project, r.Refs, r.Owner, r.Nonce)
	if len(own) == len(r.Refs) {
		return driver.Acquired{Token: own[0].Token, Refs: d.rows(r.Project, r.Refs)}, nil
	}
	for _, l := range own {
		d.mark = max(d.mark, l.Token)
	}
	v := d.decide(r)
	holders := v.Others
	d.pause("acquires after looking")
	if d.bug == "takes what it can" || d.bug == "reclaims what it can" {
		for _, ref := range r.Refs {
			row, ok := d.standing(key{r.Project, ref})
			if !ok && d.bug == "takes what it can" || ok && row.Stale() && d.bug == "reclaims what it can" {
				d.insert(r, ref, d.mark+1, nil)
			}
		}
	}
	if d.refuses(holders) {
		for i, ref := range r.Refs {
			d.leave(key{r.Project, ref}, v.After[i])
		}
		if d.bug == "names the first holder" {
			holders = holders[:1]
		}
		return driver.Acquired{Place: v.Place}, fmt.Errorf("acquiring: %w", &driver.LockedError{Holders: holders})
	}
	token := d.nextToken(holders)
	a := driver.Acquired{Token: token, Reclaimed: d.reclaimed(holders), Refs: d.rows(r.Project, r.Refs)}
	d.pause("values before transaction")
	for i, ref := range r.Refs {
		d.insert(r, ref, token, v.After[i].Queue)
		d.pause("acquires row by row")
	}
	if d.bug == "marker stays" && len(holders) > 0 {
		m := holders[0]
		m.Project = driver.ReclaimPrefix + r.Project + "_" + m.Token.Time().Format("2006-01-02T15:04:05.000000000Z")
		m.Owner = r.Owner
		d.locks[key{m.Project, m.Ref}] = lockRow{LockInfo: m}
	}
	return a, nil
}

// reclaimed returns the locks that were taken over, without the reservations among them.
func (d *connection) reclaimed(locks []driver.LockInfo) []driver.LockInfo {
	return slices.DeleteFunc(slices.Clone(locks), func(l driver.LockInfo) bool { return l.Reserved() && d.bug != "reservations are reclaimed" })
}

func (d *connection) refuses(holders []driver.LockInfo) bool {
	return anyFresh(holders) && d.bug != "reclaims fresh locks" || len(holders) > 0 && d.bug == "never reclaims"
}

// nextToken returns one for locks that are taken over from holders.
func (d *connection) nextToken(holders []driver.LockInfo) driver.Token {
	token := max(driver.TokenOf(now()), d.mark+1)
	for _, l := range holders {
		if d.bug != "token by the clock" {
			token = max(token, l.Token+1)
		}
	}
	if d.bug == "token of the holder" && len(holders) > 0 {
		token = holders[0].Token
	}
	if d.bug != "token by the clock" {
		d.mark = token
	}
	return token
}

func (d *connection) insert(r driver.AcquireRequest, ref string, token driver.Token, waiting queue.Queue) {
	row := lockRow{
		LockInfo: driver.LockInfo{Project: r.Project, Ref: ref, Owner: r.Owner, Token: token, Heartbeat: now(), StaleAfter: r.StaleAfter},
		nonce:    r.Nonce,
		queue:    waiting,
	}
	d.locks[key{r.Project, ref}] = row
	if d.bug == "remembers its locks" {
		d.taken[row.ID()] = true
	}
}

// remembers reports whether this driver took that lock, if it has the bug to remember its locks.
func (d *connection) remembers(id driver.LockID) bool {
	return d.bug != "remembers its locks" || d.taken[id]
}

// matches returns the row of the lock that id names, and whether it stands. The method selects
// the bugs.
func (d *connection) matches(id driver.LockID, method string) (lockRow, bool) {
	row, ok := d.locks[key{id.Project, id.Ref}]
	switch d.bug {
	case "by name":
		return row, ok
	case "tokens not before":
		return row, ok && row.Token >= id.Token
	}
	return row, ok && row.Token == id.Token &&
		(row.Owner == id.Owner || d.bug == "owner ignored by "+method) &&
		(!row.Intended() || d.bug == "intents are locks to "+method)
}

func (d *connection) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	end, err := d.beginWrite(ctx, "Beat")
	if err != nil {
		if d.bug == "unknown is lost" {
			return slices.Repeat([]driver.BeatResult{driver.BeatLost}, len(locks)), err
		}
		return nil, err
	}
	defer end()
	if d.bug == "beats all of the owner" && len(locks) > 0 {
		for k, row := range d.locks {
			if row.Owner == locks[0].Owner {
				row.Heartbeat = now()
				d.locks[k] = row
			}
		}
	}
	results := make([]driver.BeatResult, len(locks))
	for i, id := range locks {
		row, ok := d.matches(id, "beats")
		d.pause("beats after looking")
		if !ok || d.bug == "beats of one owner" && id.Owner != locks[0].Owner || !d.remembers(id) {
			results[i] = driver.BeatLost
			if d.bug == "unknown for lost" {
				results[i] = driver.BeatUnknown
			}
			continue
		}
		results[i] = driver.BeatRenewed
		row.Heartbeat = now()
		if d.bug == "beat renews the token" {
			row.Token++
		}
		if d.bug == "beats forget the queue" {
			row.queue = nil
		}
		if d.bug != "beats nothing" {
			d.locks[key{id.Project, id.Ref}] = row
		}
	}
	if d.bug == "results by name" {
		slices.SortFunc(results, func(a, b driver.BeatResult) int { return cmp.Compare(a, b) })
	}
	return results, nil
}

func (d *connection) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	end, err := d.beginWrite(ctx, "Release")
	if err != nil {
		return driver.Released{}, err
	}
	defer end()
	var a driver.Released
	for _, ref := range r.Refs {
		id := driver.LockID{Project: r.Project, Ref: ref, Owner: r.Owner, Token: r.Token}
		_, ok := d.matches(id, "releases")
		d.pause("releases after looking")
		if ok && d.remembers(id) {
			if d.bug == "releases hand nothing on" {
				d.endBy("releases", key{r.Project, ref})
				continue
			}
			d.end(key{r.Project, ref}, r.Next)
		} else if d.bug != "nothing is missing" {
			a.Missing = append(a.Missing, ref)
		}
	}
	switch {
	case d.bug == "releases all or nothing" && len(a.Missing) > 0:
		a.Missing = r.Refs
	case d.bug == "missing in reverse":
		slices.Reverse(a.Missing)
	}
	return a, nil
}

func (d *connection) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	end, err := d.beginWrite(ctx, "Purge")
	if err != nil {
		return nil, err
	}
	defer end()
	results := make([]bool, len(locks))
	for i, l := range locks {
		row, ok := d.matches(l.LockID, "purges")
		ok = ok && (l.Heartbeat.IsZero() || l.Heartbeat.Equal(row.Heartbeat) || d.bug == "heartbeat ignored")
		ok = ok && (row.Stale() || !l.Heartbeat.IsZero() || d.bug != "purges the stale only")
		d.pause("purges after looking")
		switch k := (key{l.Project, l.Ref}); {
		case !ok:
		case row.Reserved() && d.bug != "purges hand on what is kept":
			delete(d.locks, k)
		default:
			d.endBy("purges", k)
		}
		results[i] = ok || d.bug == "all purged"
	}
	return results, nil
}

func (d *connection) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	end, err := d.beginWrite(ctx, "Abandon")
	if err != nil {
		return err
	}
	defer end()
	for _, ref := range r.Refs {
		row, ok := d.locks[key{r.Project, ref}]
		ok = ok && (row.of(r.Owner, r.Nonce, d.bug) || d.bug == "nonce ignored" && row.Owner == r.Owner)
		ok = ok && (!row.Intended() || d.bug == "intents are locks to abandonments")
		if ok && d.bug != "abandons nothing" {
			d.endBy("abandonments", key{r.Project, ref})
		} else if d.bug == "abandons all or nothing" {
			return nil
		}
		d.withdraw(key{r.Project, ref}, r.Waiter)
		d.pause("abandons row by row")
	}
	return nil
}

func (d *connection) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return driver.LockPage{}, err
	}
	defer end()
	var page driver.LockPage
	for _, k := range slices.SortedFunc(maps.Keys(d.locks), key.compare) {
		row, _ := d.standing(k)
		if d.selects(q, k, row.LockInfo) && len(page.Locks) < q.Limit {
			row.Waiters = len(row.queue)
			if d.bug == "one waiter is counted" {
				row.Waiters = min(row.Waiters, 1)
			}
			page.Locks = append(page.Locks, row.LockInfo)
		}
	}
	if l, ok := lastOf(d.bug, page.Locks, q.Limit); ok {
		page.Next = driver.LockCursor{Project: l.Project, Ref: l.Ref}
	}
	return page, nil
}

func (d *connection) selects(q driver.LockQuery, k key, l driver.LockInfo) bool {
	after := k.compare(key{q.After.Project, q.After.Ref}) > 0
	if d.bug == "page by ref" {
		after = l.Project > q.After.Project && l.Ref > q.After.Ref
	}
	owner := l.Owner == q.Owner || strings.HasPrefix(l.Owner, q.Owner+"/")
	if d.bug == "sites by prefix" {
		owner = strings.HasPrefix(l.Owner, q.Owner)
	}
	return after && (q.Owner == "" || owner) &&
		(strings.HasPrefix(l.Project, driver.ReclaimPrefix) == q.Markers || d.bug == "markers are locks") &&
		(q.Project == "" || l.Project == q.Project) &&
		(q.Ref == "" || l.Ref == q.Ref) &&
		d.hasPrefix(l.Ref, q.Prefix) &&
		(!q.Stale || l.Stale() || d.bug == "stale filter ignored") &&
		(q.OlderThan == 0 || l.Age > q.OlderThan)
}

func (d *connection) Now(ctx context.Context) (time.Time, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer end()
	return now(), nil
}
