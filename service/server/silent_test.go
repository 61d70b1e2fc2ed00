package server_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A database that accepts connections and requests, and answers none, at first or from some time on.
func TestAServerAnswersWhileItsDatabaseIsSilent(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: half a minute in which PostgreSQL answers nothing; make test-all runs it")
	}
	t.Parallel()
	kind := local.PostgresKind()
	address := kind.New(t).URL()
	const label = "silent"
	pprof.Do(t.Context(), pprof.Labels("test", label), func(context.Context) {
		t.Run("from the beginning, and in the middle of requests", func(t *testing.T) {
			testSilence(t, kind, address)
			if labelled(t, label) == "" {
				t.Error("the goroutines of the server can't be told from others")
			}
		})
	})
	// The databases and the proxy have ended with the test above; connections of clients end with the server's.
	all := ""
	eventually(t, "what the server has started has ended", func() bool {
		all = labelled(t, label)
		return all == ""
	})
}

// labelled returns the stacks of the goroutines that were started under a label.
func labelled(t *testing.T, label string) (stacks string) {
	t.Helper()
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		t.Fatal(err)
	}
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf(`"test":%q`, label)) {
			stacks += stack + "\n\n"
		}
	}
	return stacks
}

func testSilence(t *testing.T, kind local.Kind, address string) {
	r := at(t, "PostgreSQL", kind, address)
	for _, subject := range []string{"ci", "other"} {
		r.allow(t, subject, access.Write, "p", access.All)
		r.allow(t, subject, access.Lock, "p", access.All)
	}
	proxy, through := behindProxy(t, address)
	open := func() *refdb.DB {
		db, err := refdb.Open(func(ctx context.Context) (refdb.Driver, error) { return kind.Driver(ctx, through) }, refdb.Options{Site: "server"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	proxy.Set(faultproxy.Replies, faultproxy.Hold)
	s := r.start(t, server.DefaultLimits, open(), open())
	silent := func(when string) {
		t.Helper()
		eventually(t, when+": it is not ready", func() bool {
			status, text := s.readiness(t)
			return status == http.StatusServiceUnavailable && strings.Contains(text, access.ErrStale.Error())
		})
		_, err := s.plain("other").Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{mainRef}}))
		if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("%s: a call: %v", when, err)
		}
	}
	speaking := func(when string) {
		t.Helper()
		eventually(t, when+": it is ready", func() bool {
			status, _ := s.readiness(t)
			return status == http.StatusOK
		})
	}
	silent("a database that answers nothing")
	proxy.Clear()
	speaking("when it answers")
	long := locking(mainRef)
	long.LeaseTime = durationpb.New(leaseTime)
	held := r.acquire(t, s.plain("other"), long).GetAcquired()
	extend := func() (*refdbv1.ExtendResponse, error) {
		got, err := s.plain("other").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: held.Lock}))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	}
	if got, err := extend(); err != nil || got.GetExtended() == nil { // the connection stays, for the next one
		t.Errorf("%v, %v", got, err)
	}

	proxy.Set(faultproxy.Replies, faultproxy.Hold)
	var calling sync.WaitGroup
	call := func(what string, do func() (unknown bool, err error)) {
		calling.Go(func() {
			unknown, err := do()
			nothing := connect.CodeOf(err) == connect.CodeUnavailable && strings.Contains(err.Error(), "nothing was done")
			if !unknown && !nothing {
				t.Errorf("%s in the middle: %v", what, err)
			}
		})
	}
	for i := range 20 {
		call("an acquisition", func() (bool, error) {
			got, err := s.plain("ci").Acquire(t.Context(), connect.NewRequest(locking(fmt.Sprintf("refs/locks/%d", i))))
			return err == nil && got.Msg.GetUnknown() != nil, err
		})
		call("an update", func() (bool, error) {
			got, err := s.grpc("ci").Update(t.Context(), connect.NewRequest(moving(fmt.Sprintf("refs/tags/%d", i), "", one)))
			return err == nil && got.Msg.GetUnknown() != nil, err
		})
	}
	call("another subject's Extend", func() (bool, error) {
		got, err := extend()
		return got.GetUnknown() != nil, err
	})
	call("another subject's Get", func() (bool, error) {
		_, err := s.grpc("other").Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{mainRef}}))
		return false, err
	})
	calling.Wait()
	silent("a database that has stopped to answer")

	proxy.Clear()
	speaking("when it answers again")
	for _, c := range []string{"ci", "other"} {
		eventually(t, c+" can lock again", func() bool {
			got, err := s.plain(c).Acquire(t.Context(), connect.NewRequest(locking("refs/locks/after-"+c)))
			return err == nil && got.Msg.GetAcquired() != nil
		})
	}
	if got, err := extend(); err != nil || got.GetExtended() == nil {
		t.Errorf("the lock from before: %v, %v", got, err)
	}
	if got := s.metric(t, "ci", "refdb_server_calls"); got != "0" {
		t.Errorf("%s calls are in progress", got)
	}
}

// behindProxy returns a proxy in front of a database's server, and the database's address through it.
func behindProxy(t *testing.T, address string) (p *faultproxy.Proxy, through string) {
	t.Helper()
	to, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	var server faultproxy.Endpoint
	server.Network, server.Address = pgconn.NetworkAddress(to.Host, to.Port)
	if p, err = faultproxy.New(faultproxy.Options{Server: server}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, (&url.URL{
		Scheme: "postgres", Host: p.Address(), Path: "/" + to.Database, User: url.UserPassword(to.User, to.Password), RawQuery: "sslmode=disable",
	}).String()
}
