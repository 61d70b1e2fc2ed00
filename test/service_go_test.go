package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// acquireAsDocumented is the example of docs/SERVICE.md, "Other languages", with another URL.
func acquireAsDocumented(ctx context.Context, url, token, uuid string) (time.Time, error) {
	client := refdbv1connect.NewRefdbServiceClient(http.DefaultClient, url, connect.WithProtoJSON())
	request := connect.NewRequest(&refdbv1.AcquireRequest{
		Project: "my/project", Refs: []string{"refs/locks/deploy"}, LeaseTime: durationpb.New(time.Minute), RequestId: uuid,
	})
	request.Header().Set("Authorization", "Bearer "+token)
	sent := time.Now() // the lease counts from before the request was sent
	response, err := client.Acquire(ctx, request)
	switch {
	case err != nil: // connect.CodeOf(err) is the code
		return time.Time{}, err
	case response.Msg.GetLocked() != nil:
		return time.Time{}, fmt.Errorf("locked by %s", response.Msg.GetLocked().Holders[0].Subject)
	case response.Msg.GetAcquired() == nil:
		return time.Time{}, errors.New("it is not known whether the lock was acquired: repeat the request")
	}
	deadline := sent.Add(response.Msg.GetAcquired().LeaseTime.AsDuration() * 4 / 5)
	return deadline, nil
}

var goExample = regexp.MustCompile("(?s)```go\n(.*?)```")

func TestTheGoExampleOfTheServicesPageIsTheOneThatRuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/SERVICE.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("service_go_test.go")
	if err != nil {
		t.Fatal(err)
	}
	shown := goExample.FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page has no example")
	}
	text := "\t" + strings.ReplaceAll(strings.TrimSpace(string(shown[1])), "\n", "\n\t") + "\n"
	text = strings.NewReplacer(`"http://127.0.0.1:9480"`, "url", "return err\n", "return time.Time{}, err\n", "return fmt", "return time.Time{}, fmt",
		"return errors", "return time.Time{}, errors").Replace(text)
	if !strings.Contains(string(source), text) {
		t.Errorf("this test lacks\n%s", text)
	}
}

func TestTheGoExampleOfTheServicesPageAcquiresALock(t *testing.T) {
	t.Parallel()
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "server"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := server.New(server.Options{DB: db, Rules: db, Logger: slog.New(slog.DiscardHandler), Limits: server.DefaultLimits})
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for _, subject := range []string{"ci", "other"} {
		if tokens[subject], _, err = access.CreateToken(t.Context(), db, subject, time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		if _, _, err := access.AddRule(t.Context(), db, access.Rule{Subject: subject, Projects: access.All, Refs: access.All, Right: access.Lock}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.RunCache(ctx); close(ended) }()
	h := httptest.NewServer(s.Handler())
	defer func() { h.Close(); stop(); <-ended }()
	before := time.Now()
	var deadline time.Time
	for limit := before.Add(patience); ; time.Sleep(10 * time.Millisecond) {
		deadline, err = acquireAsDocumented(t.Context(), h.URL, tokens["ci"], "of-this-test-alone")
		if code := connect.CodeOf(err); err == nil || code != connect.CodeUnavailable && code != connect.CodeUnauthenticated || time.Now().After(limit) {
			break // until then the server has not read the rules
		}
	}
	if err != nil || deadline.Before(before.Add(48*time.Second)) || deadline.After(time.Now().Add(48*time.Second)) {
		t.Errorf("%s, %v", deadline, err)
	}
	if _, err := acquireAsDocumented(t.Context(), h.URL, tokens["other"], "of-another-client"); err == nil || err.Error() != "locked by ci" {
		t.Errorf("another client: %v", err)
	}
}
