// Package intents announces moves of refs that a program makes outside the database, such as in a
// Git repository: a move is recorded as an intent, with a lock, before it is made, and the intent
// is ended afterwards. A crash in between leaves a record of the move that may have been made. Site
// daemons use this package.
package intents

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A Handle records and ends the intents of a database: see refdb.DB.Intents. Its methods may be
// called concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

const (
	maxAgentBytes = 200
	partBytes     = 8 // bytes that distinguish the parts of a preparation
)

// A Preparation is a set of intents that were recorded together.
type Preparation struct {
	Project string
	Owner   string // the owner of the intents
	Token   driver.Token
	Time    time.Time       // when they were recorded, by the database's clock
	Updates []driver.Update // in the order of their refs; New is never Unknown
	By      string          // the requester, recorded in the history for the refs that are done

	// Op is the operation that recorded the intents, or "". The writes of [Handle.Finish] are
	// recorded under Op, a "-" and a unique suffix: a preparation may be finished in parts, and the
	// ID of a write must prove that the whole write was carried out.
	Op string

	request driver.PrepareRequest // the request that recorded the intents
}

// An Option changes what a preparation records.
type Option func(*driver.PrepareRequest)

// AskedBy records the requester of the move with each intent, at most 200 bytes, instead of
// refdb.Options.By. [Handle.Finish] records the requester in the history.
func AskedBy(name string) Option { return func(r *driver.PrepareRequest) { r.By = name } }

// Prepare locks the refs of updates, at most [driver.MaxLockRefs], and records the updates as
// intents, all or none, in one transaction, if every ref holds its Old. If not, the error is a
// [*driver.MismatchError]; while others hold fresh locks or intents on some of the refs, a
// [*driver.LockedError]. Stale locks are taken over.
//
// Refs are created only if git repositories can store them beside the project's other refs: see
// refdb.GitNames.
//
// The caller then moves the refs outside the database, and calls [Handle.Finish]. The locks neither
// need beats nor go stale: the caller must make sure that every intent is ended, even after a
// crash. [Handle.All] lists the intents. agent is recorded with them, at most 200 bytes; it should
// allow to determine whether the process that was to make the move may still make it.
//
// A request whose reply is lost is revoked before it is repeated, a few times. After
// [driver.ErrOutcomeUnknown] the intents may have been recorded, or may be recorded at any later
// time. Before any process moves these refs, by another preparation or by replication, the caller
// must pass the returned Preparation to [Handle.Revoke]. Otherwise an intent that is recorded late
// might find the ref back at the old value, and be taken for done because the ref once had the new
// value.
func (h *Handle) Prepare(ctx context.Context, project string, updates []driver.Update, agent string, opts ...Option) (p Preparation, err error) {
	sorted, err := engine.SortedUpdates(project, updates)
	if err == nil && len(updates) > driver.MaxLockRefs {
		err = fmt.Errorf("%w: %d refs, at most %d", driver.ErrTooMany, len(updates), driver.MaxLockRefs)
	}
	if err == nil {
		err = engine.CheckNote("agent", agent, maxAgentBytes)
	}
	if err == nil {
		err = engine.CheckGitNames(project, sorted)
	}
	r := driver.PrepareRequest{Project: project, Updates: sorted, Owner: h.engine.Owner, Nonce: rand.Text(), Agent: agent, By: h.engine.By}
	for _, o := range opts {
		o(&r)
	}
	if err == nil {
		err = engine.CheckBy(r.By)
	}
	if err == nil && len(r.Packs) > 0 {
		err = checkParts(&r)
	}
	if err != nil {
		return Preparation{}, fmt.Errorf("preparing: %w", err)
	}
	start := time.Now()
	var prepared driver.Prepared
	defer func() {
		h.engine.Observed(driver.Event{Op: driver.OpPrepare, Refs: len(updates), Reclaimed: len(prepared.Reclaimed)}, start, err)
	}()
	var sequence uint64
	prepare := func() (driver.Prepared, error) {
		sequence = h.engine.Sequence()
		if h.engine.Closing.Err() != nil {
			return driver.Prepared{}, driver.ErrClosed
		}
		if err := h.engine.SchemaError(); err != nil {
			return driver.Prepared{}, err
		}
		return engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Prepared, error) {
			if len(r.Packs) > 0 {
				if _, err := engine.PackStoreOf(d); err != nil {
					return driver.Prepared{}, err
				}
			}
			return d.Prepare(ctx, r)
		})
	}
	p = Preparation{Project: project, Owner: h.engine.Owner, Updates: sorted, By: r.By, Op: r.Nonce, request: r}
	prepared, err = prepare()
	// A request whose reply was lost may be carried out much later, even after the
	// intents of the next request have ended. So it is revoked before the next one.
	for try := 1; try < engine.RetryTries && errors.Is(err, driver.ErrOutcomeUnknown) && !errors.Is(err, driver.ErrUnconfirmed) && h.Revoke(ctx, p) == nil; try++ {
		r.Nonce = rand.Text()
		p.Op, p.request = r.Nonce, r
		prepared, err = prepare()
	}
	if errors.Is(err, driver.ErrOutcomeUnknown) {
		return p, fmt.Errorf("preparing: %w", err)
	}
	if err != nil {
		return Preparation{}, fmt.Errorf("preparing: %w", err)
	}
	p.Token, p.Time = prepared.Token, prepared.Time
	known := engine.KnownChanges(project, driver.Origin{ID: p.Op, Owner: p.Owner, By: p.By}, p.Updates, p.Time)
	for i := range known {
		known[i].Token, known[i].Agent = p.Token, agent
	}
	if err = h.engine.NoteWritten(ctx, sequence, known); err != nil {
		return p, fmt.Errorf("preparing: %w", err) // to be revoked
	}
	return p, nil
}

// Revoke revokes a preparation that [Handle.Prepare] returned with [driver.ErrOutcomeUnknown]. Once
// Revoke succeeds, none of the preparation's intents exists or will ever exist. It may be called
// again until it succeeds. [Handle.All] lists the record that makes a late request fail, with the
// decision [driver.Revoked]. [Handle.Forget] may remove that record when the request can no longer
// be in flight, such as after a day.
func (h *Handle) Revoke(ctx context.Context, p Preparation) error {
	if p.request.Nonce == "" {
		return fmt.Errorf("revoking: %w: this process did not request the preparation", driver.ErrInvalid)
	}
	_, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (struct{}, error) { return struct{}{}, d.Revoke(ctx, p.request) })
	if err != nil {
		return fmt.Errorf("revoking: %w", err)
	}
	names := make([]string, len(p.Updates))
	for i, u := range p.Updates {
		names[i] = u.Ref
	}
	if _, err := h.engine.Journal.End(p.Project, names, p.Op); err != nil {
		return fmt.Errorf("revoking: recording it: %w", err)
	}
	return nil
}

// Finish ends intents of one preparation, in one transaction: the refs of done take the new value,
// the refs of dropped keep the old one, and their locks are released. Intents whose ref is in
// neither stay pending. Each ref may be given only once. A process that finishes the preparation of
// an earlier process creates p from the listed intents.
//
// If an intent is no longer pending, because it was finished before or an operator resolved it, no
// ref is changed and the error wraps [driver.ErrLockLost]; but if done is empty, the intents that
// were pending have ended. A [*driver.MismatchError] means that a writer that ignores locks moved a
// ref of done; nothing is changed then. If the reply is lost, the error wraps
// [driver.ErrOutcomeUnknown]: another call of Finish, or [Handle.All], shows whether the request
// was carried out.
func (h *Handle) Finish(ctx context.Context, p Preparation, done, dropped []string) (err error) {
	r, err := p.finish(done, dropped)
	if err != nil {
		return fmt.Errorf("finishing: %w", err)
	}
	known, err := h.endInJournal(p.Project, r.Dropped, p.Op)
	if err != nil {
		return fmt.Errorf("finishing: %w", err)
	}
	e := driver.Event{Op: driver.OpUpdate, Refs: len(r.Done)}
	if len(r.Done) == 0 {
		e = driver.Event{Op: driver.OpRelease, Refs: len(r.Dropped)}
	}
	start := time.Now()
	defer func() { h.engine.Observed(e, start, err) }()
	w := engine.Write{Project: r.Project, ID: r.ID, Updates: r.Done}
	w.Send = func() error {
		_, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (struct{}, error) { return struct{}{}, d.Finish(ctx, r) })
		return err
	}
	// The first request that is carried out ends the intents, so a second one does nothing.
	w.Repeatable = func() bool { return true }

	sequence := h.engine.Sequence()
	var ended []string // no longer pending
	var lost *driver.LostError
	for err = h.engine.Write(ctx, w); len(r.Done) == 0 && errors.As(err, &lost); err = h.engine.Write(ctx, w) {
		// No ref is moved: end those intents that are still pending.
		ended = append(ended, lost.Refs...)
		rest := engine.Without(r.Dropped, lost.Refs)
		if len(rest) == 0 || len(rest) == len(r.Dropped) {
			break
		}
		r.Dropped = rest
	}
	if len(ended) > 0 && (err == nil || errors.Is(err, driver.ErrLockLost)) {
		slices.Sort(ended)
		err = &driver.LostError{Project: p.Project, Refs: ended, Reason: "the intent has already ended"}
	}
	err = h.restoreIntents(known, err)
	if err = h.noteFinished(ctx, sequence, p, r, err); err != nil {
		return fmt.Errorf("finishing: %w", err)
	}
	return nil
}

// endInJournal removes intents of one operation from the journal before the database is requested
// to end them without a change: a comparison would otherwise report them as lost. It returns the
// removed intents: see restoreIntents.
func (h *Handle) endInJournal(project string, refs []string, op string) (known []driver.Known, err error) {
	if op == "" || len(refs) == 0 {
		return nil, nil
	}
	return h.engine.Journal.End(project, refs, op)
}

// restoreIntents notes intents again that a halted database refused to end: a recovery needs the
// outcome of their moves. err is the outcome of the request, which restoreIntents returns.
func (h *Handle) restoreIntents(known []driver.Known, err error) error {
	if len(known) > 0 && (errors.Is(err, driver.ErrNotAdmitted) || errors.Is(err, driver.ErrLostChanges)) {
		return errors.Join(err, h.engine.Journal.Note(known))
	}
	return err
}

// noteFinished notes the intents that a request to finish p has ended, in addition to the dropped
// ones; err is the request's outcome.
func (h *Handle) noteFinished(ctx context.Context, sequence uint64, p Preparation, r driver.FinishRequest, err error) error {
	var lost *driver.LostError
	switch {
	case errors.As(err, &lost) && p.Op != "":
		_, ending := h.engine.Journal.End(p.Project, lost.Refs, p.Op)
		return errors.Join(err, ending)
	case err != nil || len(r.Done) == 0:
		return err
	}
	return h.engine.NoteWritten(ctx, sequence, engine.KnownChanges(p.Project, r.Origin, r.Done, p.Time))
}

// finish returns the request that ends the intents of done and dropped.
func (p Preparation) finish(done, dropped []string) (driver.FinishRequest, error) {
	// A program of an earlier version may have prepared more than driver.MaxLockRefs.
	all, err := engine.CheckRefs(p.Project, slices.Concat(done, dropped), driver.MaxUpdateRefs)
	if err != nil {
		return driver.FinishRequest{}, err
	}
	prepared := make(map[string]driver.Update, len(p.Updates))
	for _, u := range p.Updates {
		prepared[u.Ref] = u
	}
	for _, ref := range all {
		if _, ok := prepared[ref]; !ok {
			return driver.FinishRequest{}, fmt.Errorf("%w ref %q: it is not of this preparation", driver.ErrInvalid, ref)
		}
	}
	o := driver.Origin{ID: rand.Text(), Owner: p.Owner, By: p.By}
	if p.Op != "" {
		o.ID = p.Op + "-" + o.ID[:partBytes]
	}
	r := driver.FinishRequest{Project: p.Project, Origin: o, Token: p.Token, Dropped: slices.Sorted(slices.Values(dropped))}
	for _, ref := range slices.Sorted(slices.Values(done)) {
		u := prepared[ref]
		if err := engine.CheckNew(u.New); err != nil {
			return driver.FinishRequest{}, fmt.Errorf("ref %q: %w", ref, err)
		}
		u.New = engine.Tombstone(u.Old, u.New)
		r.Done = append(r.Done, u)
	}
	return r, nil
}

// All iterates over the intents that f selects, in byte order of project and ref. It reads page by
// page, each as of its own point in time. An error ends the iteration.
func (h *Handle) All(ctx context.Context, f driver.IntentFilter) iter.Seq2[driver.Intent, error] {
	check := driver.LockFilter{Project: f.Project, Ref: f.Ref, Owner: f.Owner}
	if err := engine.CheckLockFilter(check); err != nil {
		return engine.FailedListing[driver.Intent]("intents", err)
	}
	return engine.Pages(ctx, h.engine, "intents", func(d driver.Driver, after driver.IntentCursor) ([]driver.Intent, driver.IntentCursor, error) {
		page, err := d.Intents(ctx, driver.IntentQuery{IntentFilter: f, After: after, Limit: engine.PageSize})
		return page.Intents, page.Next, err
	})
}

// Resolve ends pending intents, as listed by [Handle.All], on behalf of their owner: their refs
// take the new value, or keep the old one, and their locks end. It returns the intents that it
// ended, without those that their owner finished meanwhile. The decision, its author and the reason
// stay recorded until the owner's site has applied the decision and calls [Handle.Forget]. Resolve
// works in chunks: after an error the returned intents have ended.
//
// Resolve is for a site that won't come back, or not soon. The decision may contradict the values
// that the site has shown to its readers.
func (h *Handle) Resolve(ctx context.Context, intents []driver.Intent, d driver.Decision, by, reason string) (resolved []driver.Intent, err error) {
	if d != driver.KeepOld && d != driver.TakeNew {
		return nil, fmt.Errorf("resolving: %w decision %q: give %q or %q", driver.ErrInvalid, d, driver.KeepOld, driver.TakeNew)
	}
	if by == "" || reason == "" {
		return nil, fmt.Errorf("resolving: %w: give the operator and the reason", driver.ErrInvalid)
	}
	if err := errors.Join(engine.CheckNote("name", by, engine.MaxReasonBytes), engine.CheckNote("reason", reason, engine.MaxReasonBytes)); err != nil {
		return nil, fmt.Errorf("resolving: %w", err)
	}
	start := time.Now()
	defer func() { h.engine.Observed(driver.Event{Op: driver.OpResolve, Refs: len(resolved)}, start, err) }()
	if err := h.engine.SchemaError(); err != nil {
		return nil, fmt.Errorf("resolving: %w", err)
	}
	defer h.engine.Changed()
	for chunk := range slices.Chunk(intents, engine.PageSize) {
		r := driver.ResolveRequest{Origin: h.engine.Origin(), Intents: intentIDs(chunk), Decision: d, Reason: reason}
		r.By = by
		ended, err := engine.Retry(ctx, h.engine, func(d driver.Driver) ([]bool, error) { return d.Resolve(ctx, r) })
		if err != nil {
			return resolved, fmt.Errorf("resolving: %w", err)
		}
		for i, ok := range ended {
			if ok {
				resolved = append(resolved, chunk[i])
			}
		}
	}
	h.engine.Logger.WarnContext(ctx, "intents resolved by an operator", "asked", len(intents), "resolved", len(resolved), "decision", string(d))
	return resolved, nil
}

// Forget removes the records of resolved intents whose site has applied the decision. It does not
// change pending intents.
func (h *Handle) Forget(ctx context.Context, intents []driver.Intent) error {
	for chunk := range slices.Chunk(intents, engine.PageSize) {
		var known []driver.Known
		for _, i := range chunk {
			k, err := h.endInJournal(i.Project, []string{i.Ref}, i.Op)
			if known = append(known, k...); err != nil {
				return fmt.Errorf("forgetting intents: %w", err)
			}
		}
		_, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (struct{}, error) { return struct{}{}, d.Forget(ctx, intentIDs(chunk)) })
		if err = h.restoreIntents(known, err); err != nil {
			return fmt.Errorf("forgetting intents: %w", err)
		}
	}
	return nil
}

func intentIDs(intents []driver.Intent) []driver.LockID {
	ids := make([]driver.LockID, len(intents))
	for i, in := range intents {
		ids[i] = in.ID()
	}
	return ids
}

// States returns the values of refs and the locks on them, in the order of refs, as of one point in
// time for every thousand refs. It is for programs that move refs outside the database according to
// the result: at a server that is not admitted it fails with [driver.ErrNotAdmitted].
func (h *Handle) States(ctx context.Context, project string, refs []string) (states []driver.State, err error) {
	start := time.Now()
	defer func() { h.engine.Observed(driver.Event{Op: driver.OpGet, Refs: len(refs)}, start, err) }()
	for chunk := range slices.Chunk(refs, engine.PageSize) {
		sorted, err := engine.CheckRefs(project, chunk, engine.PageSize)
		if err != nil {
			return nil, fmt.Errorf("reading refs: %w", err)
		}
		page, err := engine.Retry(ctx, h.engine, func(d driver.Driver) ([]driver.State, error) { return d.States(ctx, project, sorted) })
		if err != nil {
			return nil, fmt.Errorf("reading refs of %s: %w", project, err)
		}
		byRef := make(map[string]driver.State, len(page))
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

// WithPacks names the packs with the objects of the new values, which the preparation uses: see
// [driver.PackStore]. The error wraps [driver.ErrNoPack] if the database does not have all of them.
func WithPacks(ids ...string) Option {
	return func(r *driver.PrepareRequest) { r.Packs = append(r.Packs, ids...) }
}

// WithPack is [WithPacks] for a pack that the preparation itself stores, in its transaction. It has
// a single part: p.Number is 0, and p.Last true. All such packs of a preparation together have at
// most [driver.MaxPackPart] bytes. If the preparation fails, the pack may be in the database,
// unused.
//
// The pack builds on the values of refs: bases, at most [driver.MaxLockRefs] for a preparation. The
// error wraps [driver.ErrNoPack] if one of these refs holds another value.
func WithPack(p driver.PackPart, bases ...driver.RefValue) Option {
	return func(r *driver.PrepareRequest) {
		r.Packs = append(r.Packs, p.Pack.ID)
		r.Parts = append(r.Parts, p)
		r.RequiredValues = append(r.RequiredValues, bases...)
	}
}

// checkParts checks the packs that a preparation stores itself, and sorts them. It omits bases that
// are compared as old values anyway.
func checkParts(r *driver.PrepareRequest) error {
	slices.SortFunc(r.Parts, func(a, b driver.PackPart) int { return strings.Compare(a.Pack.ID, b.Pack.ID) })
	size := 0
	for _, p := range r.Parts {
		if err := engine.CheckPart(p); err != nil {
			return err
		}
		if p.Number != 0 || !p.Last || p.Pack.Full || p.Pack.Project != r.Project {
			return fmt.Errorf("%w pack of a preparation: it must be of its project, no base, and have one part", driver.ErrInvalid)
		}
		size += len(p.Data)
	}
	if size > driver.MaxPackPart {
		return fmt.Errorf("%w: packs of %d bytes in a preparation, at most %d", driver.ErrTooMany, size, driver.MaxPackPart)
	}
	olds := make(map[string]driver.Value, len(r.Updates))
	for _, u := range r.Updates {
		olds[u.Ref] = u.Old
	}
	var bases []driver.RefValue
	for _, b := range r.RequiredValues {
		if err := driver.CheckRef(b.Ref); err != nil {
			return err
		}
		if !b.Value.IsObjectID() || b.Value.IsDeleted() {
			return fmt.Errorf("%w base of a pack: %q", driver.ErrInvalid, b.Value)
		}
		if olds[b.Ref] != b.Value {
			bases = append(bases, b)
		}
	}
	slices.SortFunc(bases, func(a, b driver.RefValue) int {
		return cmp.Or(strings.Compare(a.Ref, b.Ref), cmp.Compare(a.Value, b.Value))
	})
	if r.RequiredValues = slices.Compact(bases); len(r.RequiredValues) > driver.MaxLockRefs {
		return fmt.Errorf("%w: packs build on %d refs, at most %d", driver.ErrTooMany, len(r.RequiredValues), driver.MaxLockRefs)
	}
	return nil
}
