package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// A starved driver has no connection left for what the reader of the rules asks.
type starved struct{ refdb.Driver }

func (starved) Now(context.Context) (time.Time, error) { return time.Time{}, driver.ErrUnavailable }

func TestTheRulesAreReadWithoutTheConnectionsOfTheCalls(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, starved{r.open()}) // waits until it is ready
	if status, text := s.post(t, r.tokens["ci"], "Get", `{"project":"p","refs":["HEAD"]}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}
