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

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// These errors persist until an operator acts, and say what to do.
var (
	errDenied = errors.New("the account lacks a permission: grant it roles/spanner.databaseUser on the database " +
		"(and roles/spanner.databaseAdmin to migrate)")
	errUnauthenticated = errors.New("the credentials are missing or not accepted: set GOOGLE_APPLICATION_CREDENTIALS, " +
		"or run `gcloud auth application-default login`")
	errReclaimed = errors.New("another process is taking over the same stale lock; if this persists, that process has died, " +
		"and the stale lock has to be purged")
	errNoDatabase = errors.New("no such database: create it, or check the database URL")
)

// mayHaveHappened reports whether a commit that ended with the given code, after that many requests
// for it, may have happened.
//
// The client repeats a request whose reply was lost (UNAVAILABLE) with the same transaction, and
// Spanner returns the outcome of that transaction. ABORTED always means that it didn't happen. So
// do the codes with which Spanner refuses a commit because of its contents or its sender, if there
// was only one request. All other codes can arise after the commit.
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

// translate converts the error of a failed request into an error of refdb. ctx is the request's
// context; unresolved reports that the request may have been carried out.
func (d *Driver) translate(ctx context.Context, c *call, what string, err error, unresolved bool) error {
	why, cause := error(oneLine{err}), context.Cause(ctx)
	// The cause of the caller's context is ignored: it may be a refdb error about a lock that has
	// nothing to do with the request.
	ended := c.caller.Err()
	switch cause = cmp.Or(ended, cause); {
	case unresolved && cause != nil:
		return fmt.Errorf("%s: %w: %w: %w", what, driver.ErrOutcomeUnknown, cause, why)
	case unresolved:
		return fmt.Errorf("%s: %w: %w", what, driver.ErrOutcomeUnknown, why)
	case ended != nil, errors.Is(cause, driver.ErrClosed):
		return failed(what, cause)
	case cause != nil:
		return fmt.Errorf("%s: %w: %w: %w", what, driver.ErrUnavailable, cause, why)
	}
	if _, ok := status.FromError(err); !ok { // neither from the server nor from the connection
		return failed(what, why)
	}
	if sessionLost(err) {
		return fmt.Errorf("%s: %w: %w", what, driver.ErrUnavailable, why)
	}
	switch spanner.ErrCode(err) {
	case codes.Unavailable, codes.Aborted, codes.ResourceExhausted, codes.Internal,
		codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return fmt.Errorf("%s: %w: %w", what, driver.ErrUnavailable, why)
	case codes.AlreadyExists: // a marker: all other rows were missing when the transaction read them
		return fmt.Errorf("%s: %w: %w: %w", what, driver.ErrUnavailable, errReclaimed, why)
	case codes.PermissionDenied:
		return fmt.Errorf("%s: %w: %w", what, errDenied, why)
	case codes.Unauthenticated:
		return fmt.Errorf("%s: %w: %w", what, errUnauthenticated, why)
	case codes.NotFound, codes.InvalidArgument:
		// A missing table or column is reported with either code, a missing database with the
		// first.
		if fault := c.client.explainMissing(ctx); fault != nil {
			return fmt.Errorf("%s: %w", what, fault)
		}
	}
	return failed(what, why)
}

// sessionType is the type of a session in Spanner's errors. A database has another type.
const sessionType = "type.googleapis.com/google.spanner.v1.Session"

// sessionLost reports whether the server doesn't know the session. The server reports that before
// it does anything.
func sessionLost(err error) bool {
	var api *apierror.APIError
	if spanner.ErrCode(err) != codes.NotFound || !errors.As(err, &api) {
		return false
	}
	missing := api.Details().ResourceInfo
	return missing != nil && missing.GetResourceType() == sessionType
}

func failed(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }

// oneLine is an error whose text is put on one line: the client's errors may quote SQL.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
