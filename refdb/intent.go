package refdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// NeverStale is the stale-after of a lock that stands for an [Intent]. Such a lock
// outlives its owner: however much time has passed, the owner's site may have shown
// the new value to its readers. It is recorded with the lock like any other
// stale-after.
const NeverStale = 100 * 365 * 24 * time.Hour

const (
	maxAgentBytes  = 200
	maxReasonBytes = 1000
	partBytes      = 8 // that tell the parts of a preparation apart
)

// An Intent is a move of a ref that its owner is about to make outside the
// database, such as in a Git repository. It is recorded before the move, together
// with a lock on the ref, so that a crash leaves a record of what may have been
// done. Nobody else can move the ref until the owner ends the intent with
// [DB.Finish] or an operator with [DB.Resolve], however long that takes.
type Intent struct {
	Project string
	Ref     string
	Token   Token  // of the lock
	Owner   string // of the lock
	Agent   string // who makes the move, as the owner describes it
	By      string // who asked for it; "" if nobody said, or the schema can't record it
	Op      string // the operation that recorded it, as in [Preparation]; "" as for By
	Old     Value  // what the ref holds; [Unknown] or a zero ID if it doesn't exist
	New     Value  // what it will hold; a zero ID if it will be deleted
	Time    time.Time
	Age     time.Duration // the database's now − Time

	// Decision says how it was resolved; [Pending] if it was not.
	Decision  Decision
	DecidedBy string
	Reason    string
	DecidedAt time.Time
}

// ID names the intent. It is also the name of its lock.
func (i Intent) ID() LockID { return LockID{i.Project, i.Ref, i.Owner, i.Token} }

// A Decision says how an intent was resolved.
type Decision string

const (
	Pending Decision = ""         // none yet: the lock stands
	KeepOld Decision = "keep-old" // the ref keeps what it held
	TakeNew Decision = "take-new" // the ref takes the new value
	Revoked Decision = "revoked"  // by its owner: its Prepare has and will have no effect
)

// A Preparation is a set of intents that were recorded together.
type Preparation struct {
	Project string
	Owner   string // that the intents were recorded under
	Token   Token
	Time    time.Time // when they were recorded, by the database's clock
	Updates []Update  // in the order of their refs; New is never Unknown
	By      string    // who asked for it: the history says so of the refs that are done

	// Op is the operation that recorded the intents, or "". What [DB.Finish] writes is
	// recorded under Op, a "-" and what makes that call unique: a preparation may be finished in
	// parts, and the ID of a write must prove that all of that write was made.
	Op string

	request PrepareRequest // that asked for it
}

// A PrepareOption changes what a preparation records.
type PrepareOption func(*PrepareRequest)

// AskedBy records with each intent who asked for the move, at most 200 bytes, instead of
// [Options].By. [DB.Finish] records it in the history.
func AskedBy(name string) PrepareOption { return func(r *PrepareRequest) { r.By = name } }

// Prepare locks the refs of updates, at most [MaxLockRefs], and records the
// updates as intents, all or none, in one transaction, if every ref holds its Old.
// If not, the error is a [*MismatchError]; while others hold fresh locks or
// intents on some of the refs, a [*LockedError]. Stale locks are taken over.
//
// Refs are created only if git repositories can hold them beside what the project has: see
// [GitNames].
//
// The caller then moves the refs outside the database, and calls [DB.Finish]. The
// locks neither need beats nor go stale: the caller must make sure that every
// intent is ended, even after a crash. [DB.Intents] lists the intents. agent is
// recorded with them, at most 200 bytes; it should tell whether the process that
// was to make the move may still make it.
//
// A request whose reply is lost is revoked before it is made again, a few times.
// After [ErrOutcomeUnknown] the intents may have been recorded, or may be at any
// later time. Before anybody moves those refs, by another preparation or by
// replication, the caller must give the returned Preparation to [DB.Revoke].
// Otherwise an intent that is recorded late might find the ref back at the old
// value, and be taken for done because the ref once had the new one.
func (db *DB) Prepare(ctx context.Context, project string, updates []Update, agent string, opts ...PrepareOption) (p Preparation, err error) {
	u, err := db.newUpdateRequest(project, updates, nil)
	if err == nil && len(updates) > MaxLockRefs {
		err = fmt.Errorf("%w: %d refs, at most %d", ErrTooMany, len(updates), MaxLockRefs)
	}
	if err == nil {
		err = checkNote("agent", agent, maxAgentBytes)
	}
	if err == nil {
		err = checkGitNames(project, u.Updates)
	}
	r := PrepareRequest{Project: project, Updates: u.Updates, Owner: db.owner, Nonce: rand.Text(), Agent: agent, By: db.opts.By}
	for _, o := range opts {
		o(&r)
	}
	if err == nil {
		err = checkBy(r.By)
	}
	if err == nil && len(r.Packs) > 0 {
		err = r.checkParts()
	}
	if err != nil {
		return Preparation{}, fmt.Errorf("preparing: %w", err)
	}
	start := time.Now()
	var prepared Prepared
	defer func() {
		db.observe(Event{Op: OpPrepare, Refs: len(updates), Reclaimed: len(prepared.Reclaimed)}, start, err)
	}()
	var sequence uint64
	prepare := func() (Prepared, error) {
		sequence = db.comparisons.sequence.Load()
		if db.closing.Err() != nil {
			return Prepared{}, ErrClosed
		}
		if err := db.schemaError(); err != nil {
			return Prepared{}, err
		}
		return retry(ctx, db, func(d Driver) (Prepared, error) {
			if len(r.Packs) > 0 {
				if _, err := packStoreOf(d); err != nil {
					return Prepared{}, err
				}
			}
			return d.Prepare(ctx, r)
		})
	}
	p = Preparation{Project: project, Owner: db.owner, Updates: u.Updates, By: r.By, Op: r.Nonce, request: r}
	prepared, err = prepare()
	// A request whose reply was lost may be carried out much later, even after the
	// intents of the next request have ended. So it is revoked before the next one.
	for try := 1; try < retryTries && errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrUnconfirmed) && db.Revoke(ctx, p) == nil; try++ {
		r.Nonce = rand.Text()
		p.Op, p.request = r.Nonce, r
		prepared, err = prepare()
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		return p, fmt.Errorf("preparing: %w", err)
	}
	if err != nil {
		return Preparation{}, fmt.Errorf("preparing: %w", err)
	}
	p.Token, p.Time = prepared.Token, prepared.Time
	known := knownChanges(project, Origin{ID: p.Op, Owner: p.Owner, By: p.By}, p.Updates, p.Time)
	for i := range known {
		known[i].Token, known[i].Agent = p.Token, agent
	}
	if err = db.noteWritten(ctx, sequence, known); err != nil {
		return p, fmt.Errorf("preparing: %w", err) // to be revoked
	}
	return p, nil
}

// Revoke takes back a preparation that [DB.Prepare] returned with
// [ErrOutcomeUnknown]. Once it succeeds, none of its intents exists or will ever
// exist. It may be called again until it succeeds. [DB.Intents] lists the record
// that keeps a late request out, with the decision [Revoked]. [DB.Forget] may
// remove that record when the request can't be under way any more, such as after
// a day.
func (db *DB) Revoke(ctx context.Context, p Preparation) error {
	if p.request.Nonce == "" {
		return fmt.Errorf("revoking: %w: this process did not request the preparation", ErrInvalid)
	}
	_, err := retry(ctx, db, func(d Driver) (struct{}, error) { return struct{}{}, d.Revoke(ctx, p.request) })
	if err != nil {
		return fmt.Errorf("revoking: %w", err)
	}
	names := make([]string, len(p.Updates))
	for i, u := range p.Updates {
		names[i] = u.Ref
	}
	if _, err := db.journal.End(p.Project, names, p.Op); err != nil {
		return fmt.Errorf("revoking: recording it: %w", err)
	}
	return nil
}

// Finish ends intents of one preparation, in one transaction: the refs of done
// take the new value, those of dropped keep the old one, and their locks are
// released. Intents whose ref is in neither stay pending. Each ref is given once.
// A process that finishes what an earlier one prepared makes p from the listed intents.
//
// If an intent is no longer pending, because it was finished before or an operator
// resolved it, no ref is changed and the error wraps [ErrLockLost]; but if done is
// empty, the intents that were pending have ended. A [*MismatchError] says that a
// writer that ignores locks moved a ref of done; nothing is changed then. If the
// reply is lost the error wraps [ErrOutcomeUnknown]: calling Finish again, or
// [DB.Intents], tells whether it was carried out.
func (db *DB) Finish(ctx context.Context, p Preparation, done, dropped []string) (err error) {
	r, err := p.finish(done, dropped)
	if err != nil {
		return fmt.Errorf("finishing: %w", err)
	}
	known, err := db.endInJournal(p.Project, r.Dropped, p.Op)
	if err != nil {
		return fmt.Errorf("finishing: %w", err)
	}
	e := Event{Op: OpUpdate, Refs: len(r.Done)}
	if len(r.Done) == 0 {
		e = Event{Op: OpRelease, Refs: len(r.Dropped)}
	}
	start := time.Now()
	defer func() { db.observe(e, start, err) }()
	w := write{project: r.Project, id: r.ID, updates: r.Done}
	w.send = func() error {
		_, err := retry(ctx, db, func(d Driver) (struct{}, error) { return struct{}{}, d.Finish(ctx, r) })
		return err
	}
	// The first request to be carried out ends the intents: a second one does nothing.
	w.repeatable = func() bool { return true }

	sequence := db.comparisons.sequence.Load()
	var ended []string // no longer pending
	var lost *LostError
	for err = db.write(ctx, w); len(r.Done) == 0 && errors.As(err, &lost); err = db.write(ctx, w) {
		// No ref is moved: end those intents that are still pending.
		ended = append(ended, lost.Refs...)
		rest := without(r.Dropped, lost.Refs)
		if len(rest) == 0 || len(rest) == len(r.Dropped) {
			break
		}
		r.Dropped = rest
	}
	if len(ended) > 0 && (err == nil || errors.Is(err, ErrLockLost)) {
		slices.Sort(ended)
		err = &LostError{Project: p.Project, Refs: ended, Reason: "the intent has already ended"}
	}
	err = db.restoreIntents(known, err)
	if err = db.noteFinished(ctx, sequence, p, r, err); err != nil {
		return fmt.Errorf("finishing: %w", err)
	}
	return nil
}

// endInJournal removes intents of one operation from the journal before the database is asked to end them without a change: a
// comparison would otherwise report them as lost. It returns what it removed: see restoreIntents.
func (db *DB) endInJournal(project string, refs []string, op string) (known []Known, err error) {
	if op == "" || len(refs) == 0 {
		return nil, nil
	}
	return db.journal.End(project, refs, op)
}

// restoreIntents notes intents again that a halted database refused to end: a recovery asks what became of them. err is the outcome of the
// request, which it returns.
func (db *DB) restoreIntents(known []Known, err error) error {
	if len(known) > 0 && (errors.Is(err, ErrNotAdmitted) || errors.Is(err, ErrLostChanges)) {
		return errors.Join(err, db.journal.Note(known))
	}
	return err
}

// noteFinished notes what a request to finish p has ended, besides what it has dropped; err is its outcome.
func (db *DB) noteFinished(ctx context.Context, sequence uint64, p Preparation, r FinishRequest, err error) error {
	var lost *LostError
	switch {
	case errors.As(err, &lost) && p.Op != "":
		_, ending := db.journal.End(p.Project, lost.Refs, p.Op)
		return errors.Join(err, ending)
	case err != nil || len(r.Done) == 0:
		return err
	}
	return db.noteWritten(ctx, sequence, knownChanges(p.Project, r.Origin, r.Done, p.Time))
}

// without returns the refs that are not in others.
func without(refs, others []string) []string {
	return slices.DeleteFunc(slices.Clone(refs), func(ref string) bool {
		_, found := slices.BinarySearch(others, ref)
		return found
	})
}

// finish returns the request that ends the intents of done and dropped.
func (p Preparation) finish(done, dropped []string) (FinishRequest, error) {
	// A program of an earlier version may have prepared more than MaxLockRefs.
	all, err := checkRefs(p.Project, slices.Concat(done, dropped), MaxUpdateRefs)
	if err != nil {
		return FinishRequest{}, err
	}
	prepared := make(map[string]Update, len(p.Updates))
	for _, u := range p.Updates {
		prepared[u.Ref] = u
	}
	for _, ref := range all {
		if _, ok := prepared[ref]; !ok {
			return FinishRequest{}, fmt.Errorf("%w ref %q: it is not of this preparation", ErrInvalid, ref)
		}
	}
	o := Origin{ID: rand.Text(), Owner: p.Owner, By: p.By}
	if p.Op != "" {
		o.ID = p.Op + "-" + o.ID[:partBytes]
	}
	r := FinishRequest{Project: p.Project, Origin: o, Token: p.Token, Dropped: slices.Sorted(slices.Values(dropped))}
	for _, ref := range slices.Sorted(slices.Values(done)) {
		u := prepared[ref]
		if err := checkNew(u.New); err != nil {
			return FinishRequest{}, fmt.Errorf("ref %q: %w", ref, err)
		}
		u.New = u.New.tombstone(u.Old)
		r.Done = append(r.Done, u)
	}
	return r, nil
}

// An IntentFilter selects intents. Zero fields select everything.
type IntentFilter struct {
	Project string
	Ref     string // exactly this one
	// Owner selects the intents of one owner and, given a site's name, those of
	// all its processes, as in a [LockFilter].
	Owner string
	// Decided selects those that were resolved and not forgotten yet, instead
	// of the pending ones.
	Decided bool
}

// Intents iterates over the intents that f selects, in byte order of project
// and ref. It reads page by page, each as of its own point in time. An error ends it.
func (db *DB) Intents(ctx context.Context, f IntentFilter) iter.Seq2[Intent, error] {
	check := LockFilter{Project: f.Project, Ref: f.Ref, Owner: f.Owner}
	if err := check.check(); err != nil {
		return failedListing[Intent]("intents", err)
	}
	return pages(ctx, db, "intents", func(d Driver, after IntentCursor) ([]Intent, IntentCursor, error) {
		page, err := d.Intents(ctx, IntentQuery{IntentFilter: f, After: after, Limit: pageSize})
		return page.Intents, page.Next, err
	})
}

// Resolve ends pending intents, as listed by [DB.Intents], in their owner's
// place: their refs take the new value, or keep the old one, and their locks end.
// It returns those that it ended, without those that their owner finished
// meanwhile. The decision, who made it and why stay recorded until the owner's
// site has applied them and calls [DB.Forget]. Resolve works in chunks: after an
// error the returned intents have ended.
//
// It is for a site that won't come back, or not soon. Its decision may contradict
// what that site has shown to its readers.
func (db *DB) Resolve(ctx context.Context, intents []Intent, d Decision, by, reason string) (resolved []Intent, err error) {
	if d != KeepOld && d != TakeNew {
		return nil, fmt.Errorf("resolving: %w decision %q: give %q or %q", ErrInvalid, d, KeepOld, TakeNew)
	}
	if by == "" || reason == "" {
		return nil, fmt.Errorf("resolving: %w: give the operator and the reason", ErrInvalid)
	}
	if err := errors.Join(checkNote("name", by, maxReasonBytes), checkNote("reason", reason, maxReasonBytes)); err != nil {
		return nil, fmt.Errorf("resolving: %w", err)
	}
	start := time.Now()
	defer func() { db.observe(Event{Op: OpResolve, Refs: len(resolved)}, start, err) }()
	if err := db.schemaError(); err != nil {
		return nil, fmt.Errorf("resolving: %w", err)
	}
	defer db.feeds.hint()
	for chunk := range slices.Chunk(intents, pageSize) {
		r := ResolveRequest{Origin: db.origin(), Intents: intentIDs(chunk), Decision: d, Reason: reason}
		r.By = by
		ended, err := retry(ctx, db, func(d Driver) ([]bool, error) { return d.Resolve(ctx, r) })
		if err != nil {
			return resolved, fmt.Errorf("resolving: %w", err)
		}
		for i, ok := range ended {
			if ok {
				resolved = append(resolved, chunk[i])
			}
		}
	}
	db.opts.Logger.WarnContext(ctx, "intents resolved by an operator", "asked", len(intents), "resolved", len(resolved), "decision", string(d))
	return resolved, nil
}

// Forget removes the records of resolved intents, whose site has applied the
// decision. Pending intents are left alone.
func (db *DB) Forget(ctx context.Context, intents []Intent) error {
	for chunk := range slices.Chunk(intents, pageSize) {
		var known []Known
		for _, i := range chunk {
			k, err := db.endInJournal(i.Project, []string{i.Ref}, i.Op)
			if known = append(known, k...); err != nil {
				return fmt.Errorf("forgetting intents: %w", err)
			}
		}
		_, err := retry(ctx, db, func(d Driver) (struct{}, error) { return struct{}{}, d.Forget(ctx, intentIDs(chunk)) })
		if err = db.restoreIntents(known, err); err != nil {
			return fmt.Errorf("forgetting intents: %w", err)
		}
	}
	return nil
}

func intentIDs(intents []Intent) []LockID {
	ids := make([]LockID, len(intents))
	for i, in := range intents {
		ids[i] = in.ID()
	}
	return ids
}

// States returns the values of refs and the locks on them, in the order of refs,
// as of one point in time for every thousand refs. It is for those who move refs outside of the database by what it
// says: at a server that is not admitted it fails with [ErrNotAdmitted].
func (db *DB) States(ctx context.Context, project string, refs []string) (states []State, err error) {
	start := time.Now()
	defer func() { db.observe(Event{Op: OpGet, Refs: len(refs)}, start, err) }()
	for chunk := range slices.Chunk(refs, pageSize) {
		sorted, err := checkRefs(project, chunk, pageSize)
		if err != nil {
			return nil, fmt.Errorf("reading refs: %w", err)
		}
		page, err := retry(ctx, db, func(d Driver) ([]State, error) { return d.States(ctx, project, sorted) })
		if err != nil {
			return nil, fmt.Errorf("reading refs of %s: %w", project, err)
		}
		byRef := make(map[string]State, len(page))
		for _, s := range page {
			byRef[s.Ref] = s
		}
		for _, ref := range chunk {
			s := byRef[ref]
			s.Ref = ref
			states = append(states, s)
		}
	}
	return states, nil
}

// checkNote returns an error wrapping ErrInvalid if s can't be recorded.
func checkNote(what, s string, most int) error {
	if len(s) > most || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("%w %s %.100q: give at most %d bytes of UTF-8 without NUL", ErrInvalid, what, s, most)
	}
	return nil
}

// errIntent explains why a lock can't be purged.
var errIntent = errors.New("the lock stands for an intent: the intent's site ends it, or `refdbctl locks resolve`")
