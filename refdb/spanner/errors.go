package spanner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"cloud.google.com/go/spanner"
	"github.com/googleapis/gax-go/v2/apierror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// What to do about errors that don't pass by themselves.
var (
	errDenied = errors.New("the account may not do that: grant it roles/spanner.databaseUser on the database " +
		"(and roles/spanner.databaseAdmin to migrate)")
	errStranger = errors.New("the credentials are missing or not accepted: set GOOGLE_APPLICATION_CREDENTIALS, " +
		"or run `gcloud auth application-default login`")
	errReclaimed = errors.New("another process is taking over the same stale lock; if it stays so, that process died, " +
		"and purging the stale lock helps")
	errNoDatabase = errors.New("no such database: create it, or check the database URL")
)

// mayHaveHappened tells whether a commit that ended with that code may have happened,
// after so many requests for it.
//
// A request whose reply was lost (UNAVAILABLE) is repeated by the client, with
// the same transaction, and Spanner answers what became of that. ABORTED always
// says that it didn't happen. So do the codes with which Spanner refuses a
// commit for what is in it or for who sent it, as the answer to the only
// request. All others can arise on the way back.
func mayHaveHappened(code codes.Code, requests int32) bool {
	switch code {
	case codes.Aborted:
		return false
	case codes.AlreadyExists, codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange,
		codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return requests > 1
	default:
		return requests > 0
	}
}

// judge tells a failed request's error in refdb's terms. ctx is the request's,
// and unresolved says that it may have been carried out.
func (d *Driver) judge(ctx context.Context, c *call, what string, err error, unresolved bool) error {
	why, cause := error(oneLine{err}), context.Cause(ctx)
	// Of the caller's context never the cause: that may be an error of refdb's own,
	// about a lock that the request has nothing to do with.
	ended := c.caller.Err()
	switch cause = cmp.Or(ended, cause); {
	case unresolved && cause != nil:
		return fmt.Errorf("%s: %w: %w: %w", what, refdb.ErrOutcomeUnknown, cause, why)
	case unresolved:
		return fmt.Errorf("%s: %w: %w", what, refdb.ErrOutcomeUnknown, why)
	case ended != nil, errors.Is(cause, refdb.ErrClosed):
		return failed(what, cause)
	case cause != nil:
		return fmt.Errorf("%s: %w: %w: %w", what, refdb.ErrUnavailable, cause, why)
	}
	if _, ok := status.FromError(err); !ok { // not the server's, nor the connection's
		return failed(what, why)
	}
	if sessionLost(err) {
		return fmt.Errorf("%s: %w: %w", what, refdb.ErrUnavailable, why)
	}
	switch spanner.ErrCode(err) {
	case codes.Unavailable, codes.Aborted, codes.ResourceExhausted, codes.Internal,
		codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return fmt.Errorf("%s: %w: %w", what, refdb.ErrUnavailable, why)
	case codes.AlreadyExists: // a marker: all else that is inserted was seen not to be there
		return fmt.Errorf("%s: %w: %w: %w", what, refdb.ErrUnavailable, errReclaimed, why)
	case codes.PermissionDenied:
		return fmt.Errorf("%s: %w: %w", what, errDenied, why)
	case codes.Unauthenticated:
		return fmt.Errorf("%s: %w: %w", what, errStranger, why)
	case codes.NotFound, codes.InvalidArgument:
		// A missing table or column is one or the other, and a missing database the first.
		if fault := c.client.fault(ctx); fault != nil {
			return fmt.Errorf("%s: %w", what, fault)
		}
	}
	return failed(what, why)
}

// sessionType is the type of a session in Spanner's errors. A database has another.
const sessionType = "type.googleapis.com/google.spanner.v1.Session"

// sessionLost reports whether the server doesn't know the session. It tells
// that before it does anything.
func sessionLost(err error) bool {
	var api *apierror.APIError
	if spanner.ErrCode(err) != codes.NotFound || !errors.As(err, &api) {
		return false
	}
	missing := api.Details().ResourceInfo
	return missing != nil && missing.GetResourceType() == sessionType
}

func failed(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }

// oneLine is an error of the client's whose text is put on one line: it may
// quote SQL.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
