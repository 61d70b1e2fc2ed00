package spanner

import (
	"errors"
	"fmt"
	"testing"

	"cloud.google.com/go/spanner"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestALostSessionIsDetectedByTypeNotByText(t *testing.T) {
	t.Parallel()
	// about returns the client's error for a reply about a resource of the given type.
	about := func(code codes.Code, text, resource string) error {
		s, err := status.New(code, text).WithDetails(&errdetails.ResourceInfo{ResourceType: resource})
		if err != nil {
			t.Fatal(err)
		}
		return spanner.ToSpannerError(s.Err())
	}
	const database = "type.googleapis.com/google.spanner.admin.database.v1.Database"
	for name, row := range map[string]struct {
		err  error
		lost bool
	}{
		"a missing session":                  {about(codes.NotFound, "gone", sessionType), true},
		"the same, wrapped":                  {fmt.Errorf("read: %w", oneLine{about(codes.NotFound, "gone", sessionType)}), true},
		"a missing database":                 {about(codes.NotFound, "Session not found", database), false},
		"a session that may not be used":     {about(codes.PermissionDenied, "Session not found", sessionType), false},
		"a missing resource of unknown type": {spanner.ToSpannerError(status.Error(codes.NotFound, "Session not found")), false},
		"an error that is not the server's":  {errors.New("Session not found"), false},
		"no error":                           {nil, false},
	} {
		if lost := sessionLost(row.err); lost != row.lost {
			t.Errorf("%s: lost is %v", name, lost)
		}
	}
}
