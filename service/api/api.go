// Package api answers the calls of refdb-server's API: it checks that a rule allows the call, calls the
// library, and turns the result into a response. It keeps no state: any server answers any request,
// and a lock outlives the server and the connection through which it was acquired.
package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
)

const (
	// MaxRefs is how many refs a request may name, and a page may list.
	MaxRefs = 1000
	// MaxWait is how long Acquire may wait for others.
	MaxWait = 30 * time.Second

	minLease = time.Second
	maxLease = time.Hour

	// Of leases with a name: a server that ends while it acquires one keeps everybody else from the lease
	// for the lease time. So does a caller that no longer waits, if nobody is ahead of it.
	minNamed = 10 * time.Second
	maxNamed = time.Minute

	readLimit  = 10 * time.Second // for a request to the database that only reads
	writeLimit = 20 * time.Second // for one that writes, which the end of a call does not interrupt
)

// A Service implements the API on a database. Its methods may be called concurrently.
type Service struct {
	db       *refdb.DB
	log      *slog.Logger
	turns    *turns
	fitted   atomic.Bool // there are as many turns as there will be
	stopping chan struct{}
	stop     func()

	mu    sync.Mutex
	ended bool // Wait was called

	running sync.WaitGroup // requests that calls wait for; none is added once ended is set
}

var _ refdbv1connect.RefdbServiceHandler = (*Service)(nil)

// New returns a service on db, for which so many calls have requests at a time. 0 is for as many as the
// database's pool has connections.
func New(db *refdb.DB, log *slog.Logger, requests int) *Service {
	s := &Service{db: db, log: log, turns: newTurns(cmp.Or(requests, defaultTurns)), stopping: make(chan struct{})}
	s.fitted.Store(requests != 0)
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	return s
}

// Drain ends all waits for locks and all streams, so that the clients go on at another server.
func (s *Service) Drain() { s.stop() }

// Wait prevents calls from beginning further writes, and returns when all writes that calls wait for
// have ended. Acquisitions that calls have left end with the DB.
func (s *Service) Wait() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.running.Wait()
}

type callerKey struct{}

// WithCaller returns a context for calls of an authenticated subject.
func WithCaller(ctx context.Context, caller access.Identity) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// Caller returns the caller that [WithCaller] has set.
func Caller(ctx context.Context) (access.Identity, bool) {
	caller, ok := ctx.Value(callerKey{}).(access.Identity)
	return caller, ok
}

type keepKey struct{}

// WithKeep returns a context for a call. An acquisition that the call leaves calls keep before it is
// sent, and what that returns when it has ended: what the call has used is in use until then.
func WithKeep(ctx context.Context, keep func() (end func())) context.Context {
	return context.WithValue(ctx, keepKey{}, keep)
}

// keepOf calls what [WithKeep] has.
func keepOf(ctx context.Context) (end func()) {
	if keep, ok := ctx.Value(keepKey{}).(func() func()); ok {
		return keep()
	}
	return func() {}
}

// callerOf returns who calls. Without an identity nothing is allowed.
func callerOf(ctx context.Context) (access.Identity, error) {
	caller, ok := Caller(ctx)
	if !ok {
		return access.Identity{}, access.ErrUnauthenticated
	}
	return caller, nil
}

// authorize returns the caller if it has a right on refs of a project.
func authorize(ctx context.Context, right access.Right, project string, refs ...string) (access.Identity, error) {
	if len(refs) > MaxRefs {
		return access.Identity{}, fmt.Errorf("%w: %d refs, at most %d are allowed", refdb.ErrTooMany, len(refs), MaxRefs)
	}
	caller, err := callerOf(ctx)
	if err == nil {
		err = caller.May(right, project, refs...)
	}
	return caller, err
}

// failure turns an error into the failure of a call. This call has written nothing; an earlier request
// with the same request ID may have.
func (s *Service) failure(ctx context.Context, err error) error {
	code, text := codeOf(err)
	if code == connect.CodeInternal || code == connect.CodeUnavailable && ctx.Err() == nil && !expected(err) {
		s.log.WarnContext(ctx, "a call failed", "code", code.String(), "class", refdb.ClassOf(err).String())
	}
	return connect.NewError(code, errors.New(cut(text)))
}

// expected reports whether a call is unavailable for a reason that the log has already.
func expected(err error) bool { return errors.Is(err, access.ErrStale) || errors.Is(err, errStopping) }

// codeOf returns the status of a failed call, and a text for the caller: the text has only names and
// values that the caller has sent or may read.
func codeOf(err error) (connect.Code, string) {
	switch {
	case errors.Is(err, access.ErrUnauthenticated):
		return connect.CodeUnauthenticated, access.ErrUnauthenticated.Error()
	case errors.Is(err, access.ErrDenied):
		return connect.CodePermissionDenied, err.Error()
	case errors.Is(err, access.ErrStale):
		return connect.CodeUnavailable, access.ErrStale.Error() + ": nothing was done"
	case errors.Is(err, errSlow):
		return connect.CodeResourceExhausted, errSlow.Error()
	case errors.Is(err, errGone):
		return connect.CodeCanceled, errGone.Error()
	case errors.Is(err, errStopping):
		return connect.CodeUnavailable, errStopping.Error()
	case errors.Is(err, errHistory):
		return connect.CodeFailedPrecondition, err.Error()
	case errors.Is(err, refdb.ErrPruned), errors.Is(err, refdb.ErrRewound):
		return connect.CodeOutOfRange, err.Error()
	case errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrTooMany):
		return connect.CodeInvalidArgument, err.Error()
	case errors.Is(err, refdb.ErrFrozen), errors.Is(err, refdb.ErrNameConflict):
		return connect.CodeFailedPrecondition, err.Error()
	case errors.Is(err, refdb.ErrLostChanges):
		return connect.CodeFailedPrecondition, "the database has lost changes: an operator has to recover it; nothing was done"
	case errors.Is(err, refdb.ErrNotAdmitted):
		return connect.CodeUnavailable, "the database's server was replaced, and not all sites have compared it yet: nothing was done"
	case errors.Is(err, errNotBegun), errors.Is(err, context.Canceled):
		return connect.CodeCanceled, errNotBegun.Error()
	case errors.Is(err, refdb.ErrUnavailable), errors.Is(err, refdb.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return connect.CodeUnavailable, "the database does not answer: nothing was done"
	}
	return connect.CodeInternal, "internal error: it is not known what was done; the server's log has the class of the error"
}

// maxText bounds the text of a failure, which may quote a name: gRPC carries it in a header.
const maxText = 500

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	text = text[:maxText]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// reading returns a context for a request that only reads.
func reading(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, readLimit)
}

var errNotBegun = errors.New("the call ended before anything was done")

// start counts a request that writes until running.Done. The error says why it may not begin.
func (s *Service) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", errNotBegun, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return refdb.ErrClosed
	}
	s.running.Add(1)
	return nil
}

// begin calls do, which writes, and waits for its result. Neither the end of the call nor the end of
// the server interrupts do: a request that was sent is not canceled. If ctx has ended already, begin
// returns errNotBegun and does not call do.
func begin[T any](ctx context.Context, s *Service, do func(context.Context) (T, error)) (T, error) {
	if err := s.start(ctx); err != nil {
		var zero T
		return zero, err
	}
	defer s.running.Done()
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	return do(lasting)
}

// errLeft: a call was answered while its request to the database went on.
var errLeft = fmt.Errorf("%w: the database has not answered within %s", refdb.ErrOutcomeUnknown, writeLimit)

// beginLasting is begin for a request that nothing may interrupt. If it takes longer than writeLimit,
// the call leaves it: beginLasting returns errLeft, and do goes on until the database answers or the DB
// is closed. Then left is called with the error of do, which nobody else learns. Until left returns, the
// request has the turn of the call.
func beginLasting[T any](
	ctx context.Context, s *Service, caller access.Identity, may func() error, do func(context.Context) (T, error), left func(context.Context, error),
) (T, error) {
	var zero T
	endTurn, err := s.turn(ctx, caller, true, may)
	if err != nil {
		return zero, err
	}
	if err := s.start(ctx); err != nil {
		endTurn()
		return zero, err
	}
	defer s.running.Done()
	type result struct {
		value T
		err   error
	}
	ended, gone := make(chan result), make(chan struct{})
	endKeep := keepOf(ctx)
	go func() {
		defer endTurn()
		defer endKeep()
		ctx := context.WithoutCancel(ctx)
		value, err := do(ctx)
		select {
		case ended <- result{value, err}:
		case <-gone:
			left(ctx, err)
		}
	}()
	limit := time.NewTimer(writeLimit)
	defer limit.Stop()
	select {
	case r := <-ended:
		return r.value, r.err
	case <-limit.C:
		close(gone)
		return zero, errLeft
	}
}

// checkID returns an error wrapping refdb.ErrInvalid unless id, which is what it says, is empty or can be
// unique.
func checkID(what, id string) error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	if id != "" && (len(id) < 16 || len(id) > 64 || strings.Trim(id, letters) != "") {
		return fmt.Errorf("%w %s: give a unique one, such as a UUID: 16 to 64 letters, digits, hyphens and underscores", refdb.ErrInvalid, what)
	}
	return nil
}

// nameOf returns a name made from the parts of a request. Requests that differ in a part have different
// names.
func nameOf(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:", len(part))
		io.WriteString(sum, part)
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum.Sum(nil)[:20]))
}

// Read calls do, which reads from the database on behalf of the caller in ctx: with a turn, and with a
// context that ends after the time that a call may take to read. The error is a [*connect.Error].
func (s *Service) Read(ctx context.Context, do func(ctx context.Context, caller access.Identity) error) error {
	caller, err := callerOf(ctx)
	if err != nil {
		return s.failure(ctx, err)
	}
	end, err := s.turn(ctx, caller, false, caller.Err)
	if err != nil {
		return s.failure(ctx, err)
	}
	defer end()
	limited, cancel := reading(ctx)
	defer cancel()
	if err := do(limited, caller); err != nil {
		return s.failure(ctx, err)
	}
	return nil
}

// End returns the cursor from which Watch has the changes of a project that come later. The error is a
// [*connect.Error].
func (s *Service) End(ctx context.Context, project string) (string, error) {
	caller, err := authorize(ctx, access.Read, project)
	if err == nil {
		var after refdb.Cursor
		if after, err = s.after(ctx, caller, &refdbv1.WatchRequest{Project: project}); err == nil {
			return after.String(), nil
		}
	}
	return "", s.failure(ctx, err)
}
