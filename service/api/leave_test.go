package api_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/api"
)

// A hanging driver answers no acquisition until it is told to.
type hanging struct {
	refdb.Driver
	answer chan struct{}
}

func (d *hanging) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	<-d.answer
	return d.Driver.Acquire(ctx, r)
}

// A caller makes calls of one subject.
type caller struct {
	service *api.Service
	ctx     context.Context
}

func (c caller) acquire(ref string) (*refdbv1.AcquireResponse, error) {
	r, err := c.service.Acquire(c.ctx, connect.NewRequest(&refdbv1.AcquireRequest{Project: "p", Refs: []string{ref}, LeaseTime: durationpb.New(time.Hour)}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

func TestACallLeavesAnAcquisitionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hanging{memory.New().Open(), make(chan struct{})}
		db, err := refdb.New(d, refdb.Options{Site: "server"})
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		cache, service := access.NewCache(db, log), api.New(db, log)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { cache.Run(ctx) })
		defer func() {
			db.Close()
			cancel()
			running.Wait()
		}()
		as := func(subject string) caller {
			text, _, err := access.CreateToken(ctx, db, subject, time.Hour, "")
			if err == nil {
				_, _, err = access.AddRule(ctx, db, access.Rule{Subject: subject, Projects: access.All, Refs: access.All, Right: access.Lock})
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(access.ValidFor)
			identity, err := cache.Authenticate(text)
			if err != nil {
				t.Fatal(err)
			}
			return caller{service, api.WithCaller(ctx, identity)}
		}
		ci, other := as("ci"), as("other")

		const left = 16
		answers := make(chan *refdbv1.AcquireResponse, left)
		for i := range left {
			go func() {
				got, err := ci.acquire("refs/locks/" + strings.Repeat("x", i+1))
				if err != nil {
					t.Error(err)
				}
				answers <- got
			}()
		}
		late := time.After(time.Minute)
		for range left {
			select {
			case got := <-answers:
				if got.GetUnknown() == nil {
					t.Errorf("%v", got)
				}
			case <-late:
				close(d.answer)
				t.Fatal("a call does not return")
			}
		}
		if _, err := ci.acquire("refs/locks/more"); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("one more: %v", err)
		}
		if got, err := other.acquire("refs/locks/other"); err != nil || got.GetUnknown() == nil {
			t.Errorf("another subject: %v, %v", got, err)
		}
		service.Wait() // not for what was left
		if _, err := other.acquire("refs/locks/late"); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("after the end: %v", err)
		}
		close(d.answer)
		synctest.Wait()
		n := 0
		for _, err := range db.Locks(ctx, refdb.LockFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != left+1 {
			t.Errorf("%d of the requests were carried out", n)
		}
	})
}
